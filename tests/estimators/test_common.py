"""scikit-learn's own checks, in full: covariance types, a partition from the data, values."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from pskem import SharedKernelClassifier, SharedKernelDensity, Shrinkage
from pskem.starts import KMeans
from reference import COVARIANCE_TYPES


# The checks fit 20 kernels to a handful of samples: kernels do run empty and collapse there.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks(
    [
        estimator(covariance_type=covariance_type)
        for estimator in (SharedKernelClassifier, SharedKernelDensity)
        for covariance_type in COVARIANCE_TYPES
    ]
    + [
        SharedKernelClassifier(partition="dependence"),
        SharedKernelClassifier(init=KMeans(), shrinkage=Shrinkage(2.0, "pooled")),
    ]
)
def test_estimator_contract(estimator, check):
    check(estimator)
