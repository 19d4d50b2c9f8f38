// EM passes of Armadillo's gmm_full from a given start, for benchmarks/peers.py.
#include <armadillo>

extern "C" const char* armadillo_version() {
  static const std::string text = arma::arma_version::as_string();
  return text.c_str();
}

// data: (n_samples, n_features), means: (n_kernels, n_features), covariances:
// (n_kernels, n_features, n_features), weights: (n_kernels,), all C-contiguous. The start is
// overwritten by the mixture after n_passes. Returns 0, or 1 if the training failed.
extern "C" int armadillo_passes(double* data, long n_samples, long n_features, long n_kernels,
                                double* weights, double* means, double* covariances,
                                long n_passes) {
  // Rows in C order are columns in Armadillo's order, and covariances are symmetric.
  const arma::mat X(data, n_features, n_samples, false, true);
  arma::gmm_full model;
  model.set_params(arma::mat(means, n_features, n_kernels, false, true),
                   arma::cube(covariances, n_features, n_features, n_kernels, false, true),
                   arma::rowvec(weights, n_kernels, false, true));
  const bool trained = model.learn(X, n_kernels, arma::eucl_dist, arma::keep_existing, 0, n_passes,
                                   1e-10, false);
  if (!trained) return 1;
  std::copy(model.means.begin(), model.means.end(), means);
  std::copy(model.fcovs.begin(), model.fcovs.end(), covariances);
  std::copy(model.hefts.begin(), model.hefts.end(), weights);
  return 0;
}
