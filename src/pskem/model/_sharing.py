"""A share of the kernels of all classes that every class is given, which calibrates decisions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from pskem.structures import FloatArray

__all__ = ["Sharing"]


class Sharing(NamedTuple):
    """What every class is given of the kernels of all, in decisions.

    shares : (R,), of each block
    priors : (L,), by which the kernels of all classes are pooled; (R, L) where blocks of models
        with different priors are multiplied
    """

    shares: FloatArray
    priors: FloatArray

    def at(self, kept: Sequence[int]) -> Sharing:
        """Of some blocks."""
        priors = self.priors if self.priors.ndim == 1 else self.priors[list(kept)]
        return Sharing(self.shares[list(kept)], priors)

    def apply(self, log_q: FloatArray) -> FloatArray:
        """log of (1 - e_r) q_rj + e_r sum_c p(c) q_rc, from log q (n, R, L)."""
        with np.errstate(divide="ignore"):
            pooled = logsumexp(log_q, axis=2, b=self.priors, keepdims=True)
            shares = self.shares[:, None]
            return np.logaddexp(np.log1p(-shares) + log_q, np.log(shares) + pooled)
