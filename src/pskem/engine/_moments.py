"""Moments of samples under the kernels, with the frame that they are taken in.

Sums of phi(x) are sums of first and second moments. From moments follow means and covariances
(``estimate``); kernels have moments of their own (``expect``); and moments in one frame can be
taken to another (``rebase``), so that sums of different passes or machines can be added. All of
them are written once, for all structures.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pskem.structures import FloatArray, Gaussians, SecondMoments, Structure, invert_lower

__all__ = ["Frame", "Moments", "estimate", "expect", "rebase"]


class Frame(NamedTuple):
    """Where moments are taken: of z = whitener @ (x - origin), for each kernel.

    origins : (K, m)
    whitener : (m, m), lower triangular; None for the identity
    """

    origins: FloatArray
    whitener: FloatArray | None

    def same(self, other: Frame) -> bool:
        """Whether another frame has the same values."""
        if self is other:
            return True
        return np.array_equal(self.origins, other.origins) and (
            np.array_equal(self.whitener, other.whitener)
            if self.whitener is not None and other.whitener is not None
            else self.whitener is other.whitener
        )

    def enter(self, points: FloatArray) -> FloatArray:
        """Points (K, m), one per kernel, in this frame."""
        z = points - self.origins
        return z if self.whitener is None else z @ self.whitener.T

    def leave(self, kernels: Gaussians) -> Gaussians:
        """Kernels in this frame as they are outside."""
        means, covariances = kernels
        if self.whitener is not None:
            colour = invert_lower(self.whitener)
            means = means @ colour.T
            covariances = _turn(covariances, colour)
        return Gaussians(self.origins + means, covariances)


def _turn(matrix: FloatArray, by: FloatArray) -> FloatArray:
    turned = by @ matrix @ by.T
    return 0.5 * (turned + turned.T)


class Moments(NamedTuple):
    """Sums over samples, each weighted by the responsibility of a kernel.

    masses : (K,), the responsibilities
    first : (K, m), z
    second : products of z, in the structure's way
    frame : in which z is taken
    """

    masses: FloatArray
    first: FloatArray
    second: SecondMoments
    frame: Frame

    def merge(self, other: Moments) -> Moments:
        """The moments of more samples, which must be in the same frame."""
        if not self.frame.same(other.frame):
            raise ValueError("Moments in different frames do not add up; rebase one of them first.")
        second = SecondMoments(
            self.second.own + other.second.own, self.second.common + other.second.common
        )
        return Moments(self.masses + other.masses, self.first + other.first, second, self.frame)


def estimate(structure: Structure, moments: Moments) -> Gaussians:
    """Means and covariances of samples with these moments.

    A kernel without mass ends at its origin, with a covariance that means nothing.
    """
    # Its sums are zero; a mass that hardly counts leaves them so, and the total as it is.
    masses = np.where(moments.masses > 0.0, moments.masses, np.finfo(np.float64).tiny)
    means = moments.first / masses[:, None]  # Pulford (2022), eq. (skemmu)
    about = structure.products(moments.masses, means, means)
    own, common = moments.second
    second = SecondMoments(own - about.own, common - about.common)
    covariances = structure.gather(masses, second, means.shape[1])  # eqs. (skemP), (mdacov)
    return moments.frame.leave(Gaussians(means, covariances))


def expect(structure: Structure, kernels: Gaussians, counts: FloatArray, frame: Frame) -> Moments:
    """The moments that so many samples (K,) of each kernel have on average."""
    means = frame.enter(kernels.means)
    covariances = kernels.covariances
    if frame.whitener is not None:
        covariances = _turn(covariances, frame.whitener)
    within = structure.spread(counts, covariances, means.shape[1])
    about = structure.products(counts, means, means)
    second = SecondMoments(within.own + about.own, within.common + about.common)
    return Moments(counts, counts[:, None] * means, second, frame)


def rebase(structure: Structure, moments: Moments, frame: Frame) -> Moments:
    """The same moments in another frame."""
    first, (own, common) = moments.first, moments.second
    if frame.whitener is not None or moments.frame.whitener is not None:
        identity = np.eye(first.shape[1])
        new, old = (
            identity if place.whitener is None else place.whitener
            for place in (frame, moments.frame)
        )
        change = new @ invert_lower(old)
        first, common = first @ change.T, _turn(common, change)
    shift = frame.enter(moments.frame.origins)  # (K, m): z' = z + shift
    cross = structure.products(np.full(len(shift), 2.0), first, shift)
    about = structure.products(moments.masses, shift, shift)
    second = SecondMoments(own + cross.own + about.own, common + cross.common + about.common)
    first = first + moments.masses[:, None] * shift
    return Moments(moments.masses, first, second, frame)
