"""Trainers of full-covariance Gaussian mixtures behind one small protocol.

Each adapter only uses the public interface of its library, starts from the same mixture where the
library allows it, and does exactly the number of passes it is asked for, or fails.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import shutil
import subprocess
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np

from benchmarks.problem import FloatArray, Mixture, Problem

__all__ = ["PEERS", "PSKEM", "SKLEARN", "TRAINERS", "Run", "Trainer"]

#: Trains from the start for a number of passes and returns the mixture.
Run = Callable[[int], Mixture]


class Trainer(Protocol):
    """A library that trains mixtures.

    name : what the tables call it
    dtype : the precision that it computes in
    same_start : whether it takes the problem's start (else it has a start of its own)
    compiles : whether the first run with a new number of passes includes a compilation
    """

    name: str
    dtype: str
    same_start: bool
    compiles: bool

    def missing(self) -> str | None:
        """Why the library cannot be used here and what would help; None if it can."""
        ...

    def version(self) -> str:
        """The version of the library."""
        ...

    def prepare(self, problem: Problem) -> Run:
        """Everything that need not be timed: imports, conversions of the data."""
        ...


class _Package:
    """Shared by the trainers that are Python packages."""

    package: ClassVar[str]
    same_start: bool = True
    compiles: bool = False

    def missing(self) -> str | None:
        if importlib.util.find_spec(self.package.replace("-", "_")) is None:
            return f"{self.package} is not installed; `pip install {self.package}` adds it"
        return None

    def version(self) -> str:
        return version(self.package)


def _check_passes(name: str, done: int, asked: int) -> None:
    """A trainer that stopped early would look faster than it is."""
    if done != asked:
        raise RuntimeError(
            f"{name} did {done} of {asked} passes, so its time per pass would be wrong. Lower"
            " MOST_PASSES in benchmarks/passes.py or plant data on which EM takes longer."
        )


class Pskem(_Package):
    """`SharedKernelDensity`: one class, one block."""

    package = "pskem"

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype
        self.name = "pskem" if dtype == "float64" else f"pskem {dtype}"

    def prepare(self, problem: Problem) -> Run:
        from pskem import SharedKernelDensity
        from pskem.starts import Start

        X = problem.X.astype(self.dtype)
        start = problem.start

        def run(n_passes: int) -> Mixture:
            model = SharedKernelDensity(
                n_components=len(start.means),
                init=Start(start.weights, start.means, start.covariances),
                reg_covar=0.0,
                tol=0.0,
                max_iter=n_passes,
                n_jobs=1,
            ).fit(X)
            _check_passes(self.name, model.n_iter_, n_passes)
            return Mixture(model.weights_, model.means_, model.covariances_)

        return run


class ScikitLearn(_Package):
    """`GaussianMixture`."""

    package = "scikit-learn"
    name = "GaussianMixture"
    dtype = "float64"

    def missing(self) -> None:
        return None  # pskem depends on it

    def prepare(self, problem: Problem) -> Run:
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.mixture import GaussianMixture

        X, start = problem
        precisions = np.linalg.inv(start.covariances)
        precisions = 0.5 * (precisions + precisions.swapaxes(1, 2))

        def run(n_passes: int) -> Mixture:
            model = GaussianMixture(
                n_components=len(start.means),
                weights_init=start.weights,
                means_init=start.means,
                precisions_init=precisions,
                reg_covar=0.0,
                tol=0.0,
                max_iter=n_passes,
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                model.fit(X)
            _check_passes(self.name, model.n_iter_, n_passes)
            return Mixture(model.weights_, model.means_, model.covariances_)

        return run


class Mlpack(_Package):
    """mlpack's `gmm_train`.

    Its Python binding always starts from k-means of its own; one iteration of it is the least
    that it does, and as it is a part of every fit it cancels in the time per pass.
    """

    package = "mlpack"
    name = "mlpack"
    dtype = "float64"
    same_start = False

    def prepare(self, problem: Problem) -> Run:
        from mlpack import gmm_train

        def run(n_passes: int) -> Mixture:
            model = gmm_train(
                gaussians=len(problem.start.means),
                input_=problem.X,
                kmeans_max_iterations=1,
                max_iterations=n_passes + 1,  # it counts from one and stops before the last
                tolerance=0.0,
                seed=1,
            )["output_model"]
            fitted = model.get_cpp_params()["GMM"]
            return Mixture(
                np.ravel(fitted["weights"]),
                np.array([np.ravel(kernel["mean"]) for kernel in fitted["dists"]]),
                np.array([kernel["covariance"] for kernel in fitted["dists"]]),
            )

        return run


class Pomegranate(_Package):
    """pomegranate's `GeneralMixtureModel` of `Normal` distributions, on PyTorch."""

    package = "pomegranate"

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype
        self.name = "pomegranate" if dtype == "float64" else f"pomegranate {dtype}"

    def prepare(self, problem: Problem) -> Run:
        import torch
        from pomegranate.distributions import Normal
        from pomegranate.gmm import GeneralMixtureModel

        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
        X = torch.tensor(problem.X.astype(self.dtype))
        weights, means, covariances = map(torch.tensor, problem.start.astype(self.dtype))

        def run(n_passes: int) -> Mixture:
            kernels = [
                Normal(mean.clone(), covariance.clone())
                for mean, covariance in zip(means, covariances, strict=True)
            ]
            # It stops when the log likelihood gains less than tol: never.
            model = GeneralMixtureModel(
                kernels, priors=weights.clone(), max_iter=n_passes, tol=-np.inf
            ).fit(X)
            return Mixture(
                model.priors.numpy(),
                np.array([kernel.means.numpy() for kernel in model.distributions]),
                np.array([kernel.covs.numpy() for kernel in model.distributions]),
            )

        return run


class Gmmx(_Package):
    """gmmx's `EMFitter`, on JAX; it accepts float32 only."""

    package = "gmmx"
    name = "gmmx float32"
    dtype = "float32"
    compiles = True

    def prepare(self, problem: Problem) -> Run:
        import jax.numpy as jnp
        from gmmx import EMFitter, GaussianMixtureModelJax

        X = jnp.asarray(problem.X.astype(self.dtype))
        weights, means, covariances = problem.start.astype(self.dtype)
        start = GaussianMixtureModelJax.from_squeezed(
            means=means, covariances=covariances, weights=weights
        )

        def run(n_passes: int) -> Mixture:
            result = EMFitter(max_iter=n_passes, tol=0.0, reg_covar=0.0).fit(X, start)
            _check_passes(self.name, int(result.n_iter), n_passes)
            fitted = result.gmm
            return Mixture(
                fitted.weights_numpy, fitted.means_numpy, fitted.covariances.values_numpy
            )

        return run


class Armadillo:
    """Armadillo's `gmm_full` in C++, compiled here against the system's headers."""

    name = "Armadillo"
    dtype = "float64"
    same_start = True
    compiles = False

    SOURCE = Path(__file__).with_name("armadillo.cpp")
    BUILD = Path(__file__).with_name("build")
    FLAGS = ("-O3", "-march=native", "-fopenmp", "-shared", "-fPIC")

    @staticmethod
    def _compiler() -> str | None:
        return shutil.which(os.environ.get("CXX", "g++"))

    def missing(self) -> str | None:
        compiler = self._compiler()
        if compiler is None:
            return "no C++ compiler; install g++ or set CXX"
        probe = [compiler, "-x", "c++", "-E", "-"]
        found = subprocess.run(probe, input="#include <armadillo>", text=True, capture_output=True)
        if found.returncode:
            return "no Armadillo headers; install them (Debian: `apt-get install libarmadillo-dev`)"
        return None

    def _library(self) -> ctypes.CDLL:
        """The compiled adapter; it is built once for each state of source and compiler."""
        compiler = str(self._compiler())
        identity = [compiler, *self.FLAGS, self.SOURCE.read_text(), Path(compiler).stat().st_mtime]
        key = hashlib.sha256(repr(identity).encode()).hexdigest()[:16]
        target = self.BUILD / f"armadillo-{key}.so"
        if not target.exists():
            self.BUILD.mkdir(exist_ok=True)
            unfinished = target.with_suffix(f".{os.getpid()}")
            command = [compiler, *self.FLAGS, str(self.SOURCE), "-o", str(unfinished)]
            built = subprocess.run([*command, "-larmadillo"], text=True, capture_output=True)
            if built.returncode:
                raise RuntimeError(
                    f"{' '.join(command)} -larmadillo failed: {built.stderr[-500:]} Install"
                    " Armadillo with its library, or leave it out with --peers."
                )
            unfinished.replace(target)
        return ctypes.CDLL(str(target))

    def version(self) -> str:
        function = self._library().armadillo_version
        function.restype = ctypes.c_char_p
        return str(function().decode()).split()[0]

    def prepare(self, problem: Problem) -> Run:
        function = self._library().armadillo_passes
        X = np.ascontiguousarray(problem.X)

        def address(array: FloatArray) -> Any:
            return array.ctypes.data_as(ctypes.c_void_p)

        def run(n_passes: int) -> Mixture:
            mixture = Mixture(*(np.array(part, order="C") for part in problem.start))
            shape = map(ctypes.c_long, (*X.shape, len(mixture.means)))
            failed = function(address(X), *shape, *map(address, mixture), ctypes.c_long(n_passes))
            if failed:
                raise RuntimeError("Armadillo's training failed; leave it out with --peers.")
            return mixture

        return run


PSKEM: dict[str, Trainer] = {dtype: Pskem(dtype) for dtype in ("float64", "float32")}
SKLEARN: Trainer = ScikitLearn()
#: What is measured where it is installed.
PEERS: list[Trainer] = [
    Armadillo(),
    Mlpack(),
    Pomegranate("float64"),
    Pomegranate("float32"),
    Gmmx(),
]
TRAINERS = {trainer.name: trainer for trainer in [*PSKEM.values(), SKLEARN, *PEERS]}
