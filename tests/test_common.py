"""scikit-learn's own checks, in full, for every covariance type and partitions from the data."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from pskem import SharedKernelClassifier, SharedKernelDensity
from reference import COVARIANCE_TYPES


# The checks fit 20 kernels to a handful of samples: kernels do run empty and collapse there.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks(
    [
        estimator(covariance_type=covariance_type)
        for estimator in (SharedKernelClassifier, SharedKernelDensity)
        for covariance_type in COVARIANCE_TYPES
    ]
    + [SharedKernelClassifier(partition=partition) for partition in ("dependence", "ica")]
)
def test_estimator_contract(estimator, check):
    check(estimator)
