"""Checks of parameters where they enter. Each error says what was given and what is accepted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pskem.structures import FloatArray


def check_choice(name: str, value: Any, accepted: Sequence[str], none: bool = False) -> None:
    if none and value is None:
        return
    if not isinstance(value, str) or value not in accepted:
        also = " or None" if none else ""
        raise ValueError(
            f"{name}={value!r} is not known. Accepted: {', '.join(map(repr, accepted))}{also}."
        )


def _is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == "auto"


def check_boolean(name: str, value: Any, auto: bool = False) -> bool | str:
    """The value as Python has it."""
    if not (isinstance(value, bool | np.bool_) or (auto and _is_auto(value))):
        accepted = "True, False or 'auto'" if auto else "True or False"
        raise ValueError(f"{name}={value!r} must be {accepted}.")
    return value if isinstance(value, str) else bool(value)


def check_n_jobs(value: Any) -> None:
    if value is not None and (not isinstance(value, Integral) or value == 0):
        raise ValueError(
            f"n_jobs={value!r} must be None (all cores), a positive number of threads, or negative"
            " to leave cores free (-1 is all cores, -2 all but one)."
        )


def check_integer(
    name: str, value: Any, low: int, none: bool = False, boolean: bool = False, auto: bool = False
) -> None:
    if (none and value is None) or (boolean and isinstance(value, bool)):
        return
    if auto and _is_auto(value):
        return
    if not isinstance(value, Integral) or isinstance(value, bool) or int(value) < low:
        also = " or None" if none else " or 'auto'" if auto else ""
        raise ValueError(f"{name}={value!r} must be an integer of at least {low}{also}.")


def check_real(
    name: str,
    value: Any,
    low: float,
    high: float = np.inf,
    strict: bool = False,
    auto: bool = False,
) -> None:
    """low <= value <= high, or low < value < high where strict; always finite."""
    if auto and _is_auto(value):
        return
    number = isinstance(value, Real) and not isinstance(value, bool) and np.isfinite(float(value))
    inside = number and (low < value < high if strict else low <= value <= high)
    if not inside:
        above, below = ("above", "below") if strict else ("of at least", "at most")
        ends = [(above, low)] * bool(np.isfinite(low)) + [(below, high)] * bool(np.isfinite(high))
        accepted = " and ".join(f"{word} {end:g}" for word, end in ends)
        accepted = f"a finite number {accepted}".strip() + (" or 'auto'" if auto else "")
        raise ValueError(f"{name}={value!r} must be {accepted}.")


def check_block_weights(value: Any, n_blocks: int | None = None) -> FloatArray | str | None:
    """Weights of the blocks, (R,), or a word for how to find them; None is all ones."""
    accepted = (
        "Accepted: 'auto', 'fit' (to held-out samples), None (all blocks alike), or one number per"
        " block, none negative."
    )
    if value is None:
        return None
    if isinstance(value, str):
        if value not in ("auto", "fit"):
            raise ValueError(f"block_weights={value!r} is not known. {accepted}")
        return value
    weights = numbers("block_weights", value)
    if weights.ndim != 1 or (n_blocks is not None and len(weights) != n_blocks):
        blocks = "" if n_blocks is None else f" for {n_blocks} block(s)"
        size = f"{len(weights)} number(s)" if weights.ndim == 1 else f"the shape {weights.shape}"
        raise ValueError(f"block_weights={weights.tolist()} has {size}{blocks}. {accepted}")
    if (weights < 0.0).any() or not weights.any():
        raise ValueError(f"block_weights={value!r} must not be negative, or all zero. {accepted}")
    return weights


def check_n_components(value: Any, suggested: Sequence[int]) -> list[int]:
    """One number of kernels per block; ``suggested`` for "auto"."""
    n_blocks = len(suggested)
    if _is_auto(value):
        return list(suggested)
    if isinstance(value, str) or not np.iterable(value):
        check_integer("n_components", value, 1, auto=True)
        return [int(value)] * n_blocks
    values = list(value)
    if len(values) != n_blocks:
        raise ValueError(
            f"n_components={value!r} has {len(values)} entries for {n_blocks} block(s). Give one"
            " integer, or one per block."
        )
    for r, entry in enumerate(values):
        check_integer(f"n_components[{r}]", entry, 1)
    return [int(entry) for entry in values]


def check_prior(value: Any, frequencies: FloatArray) -> FloatArray:
    """Class priors (L,) from the parameter and the class frequencies."""
    L = len(frequencies)
    accepted = (
        f"Accepted: 'uniform', or {L} numbers, one per class, as an array or by class, that are not"
        " negative and sum to 1; None stands for class frequencies in a fit."
    )
    if value is None:
        return frequencies
    if isinstance(value, str):
        if value != "uniform":
            raise ValueError(f"priors={value!r} is not known. {accepted}")
        return np.full(L, 1.0 / L)
    prior = numbers("priors", value)
    if prior.shape != (L,):
        raise ValueError(f"priors has shape {prior.shape}. {accepted}")
    if (prior < 0.0).any() or abs(prior.sum() - 1.0) > 1e-6:
        raise ValueError(
            f"priors={value!r} sums to {prior.sum():.6g}"
            f"{' and holds negative values' if (prior < 0.0).any() else ''}. {accepted}"
        )
    return prior / prior.sum()


def check_labels(y: NDArray[Any], classes: NDArray[Any], name: str) -> NDArray[np.intp]:
    """Positions of labels in ``classes``, which are sorted."""
    unknown = np.setdiff1d(y, classes)
    if unknown.size:
        raise ValueError(
            f"{name} holds class(es) {unknown[:10].tolist()} that the model was not trained"
            f" on. It knows {classes[:20].tolist()}{'...' if len(classes) > 20 else ''}."
        )
    return np.searchsorted(classes, y)


def numbers(name: str, value: Any) -> FloatArray:
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"{name}={value!r} must be an array of numbers, with rows of equal length."
        ) from None
    if not np.isfinite(array).all():
        raise ValueError(f"{name} holds NaN or infinite values; finite numbers are needed.")
    return array


def check_shape(
    name: str, value: Any, accepted: Sequence[tuple[int, ...]], meaning: str = ""
) -> FloatArray:
    array = numbers(name, value)
    if array.shape not in accepted:
        shapes = " or ".join(map(str, accepted)) + (f", {meaning}" if meaning else "")
        raise ValueError(f"{name} has shape {array.shape}; accepted here: {shapes}.")
    return array


def check_class_weight(value: Any, classes: NDArray[Any], masses: FloatArray) -> FloatArray | None:
    """Weights of the classes (L,), from the parameter and what the samples of each count, (L,)."""
    accepted = (
        "Accepted: None, 'balanced', or a dict from classes to positive numbers; classes that it"
        " leaves out count as they are."
    )
    if value is None:
        return None
    if isinstance(value, str):
        if value != "balanced":
            raise ValueError(f"class_weight={value!r} is not known. {accepted}")
        return masses.sum() / (len(masses) * masses)
    if not isinstance(value, Mapping):
        raise ValueError(f"class_weight={value!r} is not accepted. {accepted}")
    known = {label: j for j, label in enumerate(classes.tolist())}
    weights = np.ones(len(classes))
    for label, weight in value.items():
        if label not in known:
            raise ValueError(
                f"class_weight names the class {label!r}, which y does not have. It has"
                f" {classes[:20].tolist()}{'...' if len(classes) > 20 else ''}."
            )
        check_real(f"class_weight[{label!r}]", weight, 0.0, strict=True)
        weights[known[label]] = weight
    return weights
