"""The parameters of an estimator, parsed and checked once into a frozen value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from sklearn.utils import check_random_state

from pskem import checks
from pskem.starts import MadeStart, Start, StartMethod, StartName, as_start
from pskem.structures import STRUCTURES, FloatArray, Structure

__all__ = [
    "Arrangement",
    "CovarianceType",
    "Form",
    "Init",
    "Partition",
    "Settings",
    "Shrinkage",
    "Stepwise",
    "as_shrinkage",
    "as_stepwise",
    "draw_seeds",
]

#: What parameters accept, for type checkers and editors.
CovarianceType = Literal["full", "tied", "diag", "spherical"]
Init = StartName | Literal["auto"] | MadeStart | Start
Arrangement = Literal["sequential", "interleaved", "random", "dependence"]
Partition = Arrangement | Literal["auto"] | list[Any] | tuple[Any, ...]
ShrinkageTarget = Literal["pooled", "diag"]

#: Training samples of a class for every kernel of its own and feature of the block.
SAMPLES_PER_FEATURE = 30
#: Pseudo-samples of each kernel of categories.
CATEGORY_SMOOTHING = 20.0
#: How much more covariances are shrunk where samples without a class are learnt from.
UNLABELLED_FACTOR = 3.0
#: Samples in which the length of a stream is counted, where its memory grows by a power of it.
UNIT = 1000.0


@dataclass(frozen=True)
class Shrinkage:
    """How covariances of kernels are held together.

    Parameters
    ----------
    samples : float or "auto", default="auto"
        Pseudo-samples nu of each kernel that have a common covariance Psi:
        P_k = (n_k P_k + nu Psi) / (n_k + nu). ``"auto"`` is m + 1 for a block of m features, and
        three times as many where samples without a class are learnt from.
    target : {"diag", "pooled"}, default="diag"
        Psi: the diagonal of the covariance within all kernels together, or all of it.
    categories : float or "auto", default="auto"
        Pseudo-samples of each kernel of categories, which have the frequencies of all kernels
        together. ``"auto"`` is 20, but none where `samples` is 0.
    """

    samples: float | Literal["auto"] = "auto"
    target: ShrinkageTarget = "diag"
    categories: float | Literal["auto"] = "auto"

    def __post_init__(self) -> None:
        checks.check_real("shrinkage", self.samples, 0.0, auto=True)
        checks.check_choice("target", self.target, get_args(ShrinkageTarget))
        checks.check_real("categories", self.categories, 0.0, auto=True)

    def amount(self, structure: Structure, m: int, unlabelled: bool = False) -> float:
        """Pseudo-samples of each kernel of a block of m features.

        It takes m + 1 samples to span m features: with so many pseudo-samples no covariance is
        singular, and a kernel of 30 m samples is left nearly as it is. Samples without a class are
        given to kernels by what these are so far, and a kernel that is wrong stays wrong if it is
        narrow: then it is three times as many.
        """
        if not structure.standardised:
            if not isinstance(self.categories, str):
                return float(self.categories)
            return 0.0 if self.samples == 0.0 else CATEGORY_SMOOTHING
        if not isinstance(self.samples, str):
            return float(self.samples)
        return float(m + 1) * (UNLABELLED_FACTOR if unlabelled else 1.0)


def _check_memory(name: str, value: Any) -> None:
    if isinstance(value, Real) and not isinstance(value, bool) and float(value) > 0.0:
        return
    if isinstance(value, str) and value == "auto":
        return
    raise ValueError(
        f"{name}={value!r} is not accepted: give a number of samples above 0, np.inf to forget"
        " nothing, or 'auto'."
    )


@dataclass(frozen=True)
class Stepwise:
    """How a stream of samples is learnt from, part by part.

    After parts that count N samples, one that counts n takes the step

        eta = n / (n + min(N, memory, 1000 (S / 1000) ** kappa))

    toward its own statistics, where S is what all parts so far count and N what is left of them
    after what was forgotten. While nothing is, eta is n / (N + n): all samples count alike, in
    however many parts they come.

    Parameters
    ----------
    memory : float or "auto", default="auto"
        Samples that the parts before count for, at most; older ones are forgotten exponentially.
        ``np.inf`` never forgets. ``"auto"`` is 64,000, or less where the classes move: 16,000,
        4,000, 1,000 or 250. Gaussians of the features in each class, with such memories, predict
        the next part, and a shorter memory is taken if it predicts better by more than the kernels
        lose by it.
    kappa : float, default=1.0
        The power by which the memory grows, above 0.5 and at most 1. Below 1 the beginning of a
        stream is forgotten, although nothing has changed.
    contrast : float, default=8.0
        Lambda: how often the log posterior of the true classes counts beside the log likelihood.
        With 0, and with ``discriminative_iter=0``, the stream is learnt by EM alone.
    """

    memory: float | Literal["auto"] = "auto"
    kappa: float = 1.0
    contrast: float = 8.0

    def __post_init__(self) -> None:
        _check_memory("memory", self.memory)
        checks.check_real("kappa", self.kappa, 0.5, 1.0)
        checks.check_real("contrast", self.contrast, 0.0)

    def kept(self, total: float, seen: float, memory: float) -> float:
        """The factor by which what came before counts less when a part comes.

        total : N; seen : S; memory : that of the stream, where nothing is said
        """
        most = memory if isinstance(self.memory, str) else float(self.memory)
        most = min(most, UNIT * (seen / UNIT) ** self.kappa)
        return min(1.0, most / total) if total > 0.0 else 1.0


#: Parameters that say what form a model has.
FORM = ("n_components", "n_blocks", "partition", "covariance_type", "init", "shrinkage")
#: Settings that are no parameters.
NO_PARAMETERS = ("enough_to_validate", "open_form", "form")


class Form(NamedTuple):
    """How a model that is tried differs from one with the usual form, where no parameter says so.

    fine, fine_categories : whether numbers, and categories, have many kernels
    categories_as_numbers : whether they stand with the numbers, one for each value
    n_steps : numbers are read as so many steps; None for as they are
    linear : whether there is one kernel a class, told apart by discriminative passes alone
    firmness : times that the shrinkage is larger, where that is "auto"
    pull : pseudo-samples at the mean of all classes, which hold each kernel back in
        discriminative passes
    local : whether there is a kernel at every sample, in features that are uncorrelated within
        classes
    growing : whether the samples are the first part of a stream
    """

    fine: bool = False
    fine_categories: bool = False
    categories_as_numbers: bool = False
    n_steps: int | None = None
    linear: bool = False
    firmness: float = 1.0
    pull: float = 0.0
    local: bool = False
    growing: bool = False

    @property
    def recoded(self) -> bool:
        """Whether columns are read as other numbers."""
        return self.categories_as_numbers or self.n_steps is not None or self.local


#: The form of a model that nobody tries.
USUAL_FORM = Form()


class Settings(NamedTuple):
    """What an estimator's parameters say, checked as far as that goes without data.

    ``start`` makes what ``given`` does not fix. start, n_blocks, discriminative_iter,
    early_stopping, unlabelled_weight, margins and n_views are None for "auto". What n_components,
    partition and priors mean depends on the data; a plan decides that.

    Others are no parameters. enough_to_validate says whether samples are many enough to hold some
    out, where their number would not tell. open_form: whether forms are to be tried. form: the one
    that is tried, or was chosen among several.
    """

    structure: Structure
    start: StartMethod | None
    given: Start | None
    reseed: bool
    n_init: int
    reg_covar: float
    shrinkage: Shrinkage
    max_iter: int
    tol: float
    n_jobs: int | None
    verbose: int
    warm_start: bool
    n_components: Any = "auto"
    n_blocks: int | None = None
    partition: Any = "auto"
    block_weights: FloatArray | Literal["auto", "fit"] | None = None
    discriminative_iter: int | None = 0
    early_stopping: bool | None = False
    validation_fraction: float = 0.1
    n_iter_no_change: int | None = None
    priors: Any = None
    class_weight: Any = None
    unlabelled: Any = None
    unlabelled_weight: float | None = 1.0
    margins: bool | None = False
    stepwise: Stepwise = Stepwise()
    enough_to_validate: bool | None = None
    n_views: int | None = 1
    open_form: bool = False
    form: Form | None = None

    @property
    def shape(self) -> Form:
        """The form, also where none is tried."""
        return self.form or USUAL_FORM

    @classmethod
    def parse(cls, parameters: Mapping[str, Any]) -> Settings:
        """From the parameters of an estimator; those that it does not have are as above.

        Parameters that a subclass adds are its own business.
        """
        known = {*cls._fields} - {*NO_PARAMETERS} | {"covariance_type", "init"}
        found = {name: value for name, value in parameters.items() if name in known}
        if "n_views" in found:
            _parse_form(found)
        checks.check_choice("covariance_type", found["covariance_type"], list(STRUCTURES))
        checks.check_integer("n_init", found["n_init"], 1)
        checks.check_real("reg_covar", found["reg_covar"], 0.0)
        checks.check_integer("max_iter", found["max_iter"], 1)
        checks.check_real("tol", found["tol"], 0.0)
        checks.check_n_jobs(found["n_jobs"])
        checks.check_integer("verbose", found["verbose"], 0, boolean=True)
        checks.check_boolean("warm_start", found["warm_start"])
        found["structure"] = STRUCTURES[found.pop("covariance_type")]
        init = found.pop("init")
        found["given"] = init if isinstance(init, Start) else None
        auto = isinstance(init, str) and init == "auto"
        made = init.otherwise if isinstance(init, Start) else init
        found["start"] = None if auto else as_start("init", made)
        found["reseed"] = auto or bool((found["given"] or found["start"]).reseed)
        found["shrinkage"] = as_shrinkage(found["shrinkage"])
        found["verbose"] = int(found["verbose"])
        _check_components(found["n_components"])
        if "stepwise" in found:
            found["stepwise"] = as_stepwise(found["stepwise"])
        if "n_blocks" in found:
            checks.check_integer("n_blocks", found["n_blocks"], 1, auto=True)
            found["n_blocks"] = _number(found["n_blocks"])
        if "discriminative_iter" in found:
            _parse_refinement(found)
        return cls(**found)


def _parse_form(found: dict[str, Any]) -> None:
    """Whether the form of the model is open, and what it is if it is not."""
    checks.check_integer("n_views", found["n_views"], 1, auto=True)
    found["n_views"] = _number(found["n_views"])
    margins = found["margins"]
    checks.check_boolean("margins", margins, auto=True)
    found["margins"] = None if isinstance(margins, str) else margins
    given = [name for name in FORM if not (isinstance(found[name], str) and found[name] == "auto")]
    found["open_form"] = not given
    kind = found["covariance_type"]
    checks.check_choice("covariance_type", kind, ["auto", *STRUCTURES])
    if isinstance(kind, str) and kind == "auto":
        found["covariance_type"] = "full"
    if not found["open_form"]:
        if (found["n_views"] or 1) > 1:
            short = {name: isinstance(found[name], str | int | float) for name in given}
            named = [f"{name}={found[name]!r}" if short[name] else name for name in given]
            auto = " and ".join(f"{name}='auto'" for name in given)
            raise ValueError(
                f"n_views={found['n_views']} chooses among forms, but one is given:"
                f" {' and '.join(named)}. Leave {auto}, or set n_views=1."
            )
        found["margins"] = bool(found["margins"])


def as_shrinkage(value: Any) -> Shrinkage:
    """A number of pseudo-samples, or "auto", as a value; a value as it is."""
    return value if isinstance(value, Shrinkage) else Shrinkage(value)


def as_stepwise(value: Any) -> Stepwise:
    """A memory, or "auto", as a value; a value as it is."""
    if isinstance(value, Stepwise):
        return value
    _check_memory("stepwise", value)
    return Stepwise(value)


def _parse_refinement(found: dict[str, Any]) -> None:
    """What a classifier has besides."""
    weight = found["unlabelled_weight"]
    checks.check_real("unlabelled_weight", weight, 0.0, auto=True)
    found["unlabelled_weight"] = None if isinstance(weight, str) else float(weight)
    found["block_weights"] = checks.check_block_weights(found["block_weights"])
    checks.check_integer("discriminative_iter", found["discriminative_iter"], 0, auto=True)
    found["discriminative_iter"] = _number(found["discriminative_iter"])
    stopping = checks.check_boolean("early_stopping", found["early_stopping"], auto=True)
    found["early_stopping"] = None if isinstance(stopping, str) else stopping
    fraction = found["validation_fraction"]
    checks.check_real("validation_fraction", fraction, 0.0, 1.0, strict=True)
    checks.check_integer("n_iter_no_change", found["n_iter_no_change"], 1, none=True)


def _check_components(value: Any) -> None:
    """One number of kernels, or one per block, of which there is no knowing here how many."""
    listed = np.iterable(value) and not isinstance(value, str)
    checks.check_n_components(value, [1] * (max(1, len(value)) if listed else 1))


def _number(value: Any) -> int | None:
    return None if isinstance(value, str) else int(value)


def draw_seeds(random_state: Any, size: int = 1) -> list[int]:
    """Seeds for all that is random, from scikit-learn's kind of random state."""
    try:
        generator = check_random_state(random_state)
    except ValueError:
        raise ValueError(
            f"random_state={random_state!r} is not accepted: give None, an integer from 0 to"
            " 2**32 - 1, or a numpy.random.RandomState."
        ) from None
    return [int(seed) for seed in generator.randint(np.iinfo(np.int32).max, size=size)]
