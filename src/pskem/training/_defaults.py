"""Settings that follow from the size of the data, where they are left to it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pskem.training._refining import Wishes

__all__ = ["make_wishes", "suggest_n_components", "suggest_shrinkage"]

#: Training samples of a class for every kernel of its own and feature of the block.
SAMPLES_PER_FEATURE = 30
#: Kernels of a class at most.
MOST_PER_CLASS = 20
#: Samples from which on some are held out to choose discriminative passes and to fit weights: a
#: tenth of fewer chooses by chance, and is missed in the training.
ENOUGH_TO_VALIDATE = 1000
#: Discriminative passes, when validation chooses among them and when it does not.
VALIDATED_PASSES = 20
UNWATCHED_PASSES = 5


def suggest_n_components(counts: NDArray[np.intp], m: int) -> int:
    """K for a block of m features, from the samples of each class (L,).

    One kernel for every 30 m samples of a class, at least 1 and at most 20.
    """
    per_class = np.clip(counts // (SAMPLES_PER_FEATURE * m), 1, MOST_PER_CLASS)
    return int(per_class.sum())


def suggest_shrinkage(m: int) -> float:
    """Pseudo-samples for a block of m features.

    It takes m + 1 samples to span m features: with so many pseudo-samples no covariance is
    singular, and a kernel of 30 m samples is left nearly as it is.
    """
    return float(m + 1)


def make_wishes(
    block_weights: str | None,
    passes: int | str,
    smoothing: float,
    early_stopping: bool | str,
    n_samples: int,
    validated: bool,
) -> Wishes:
    """What to do after EM, from the estimator's parameters.

    block_weights : "fit", "auto" or, where they are given, None
    n_samples : samples that there are to train on and to hold out
    validated : whether there are validation data besides
    """
    enough = validated or n_samples >= ENOUGH_TO_VALIDATE
    choose = enough if early_stopping == "auto" else bool(early_stopping)
    if isinstance(passes, str):
        passes = VALIDATED_PASSES if choose else UNWATCHED_PASSES
    choose = choose and passes > 0
    fit = block_weights == "fit" or (block_weights == "auto" and choose)
    return Wishes(fit, passes, smoothing, choose)
