"""Options that several commands share."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import click

from pskem.blocks._partition import ARRANGEMENTS
from pskem.estimators._classifier import SharedKernelClassifier
from pskem.structures import STRUCTURES
from pskem.training._fitting import TARGETS
from pskem.training._starts import METHODS

__all__ = [
    "as_json",
    "debug_option",
    "finite",
    "home_option",
    "learning_options",
    "model_argument",
    "model_options",
    "quiet_option",
    "stack",
    "subset_option",
    "target_option",
]

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def stack(*decorators: Decorator) -> Decorator:
    """One decorator from several, in the order in which their options are listed."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


def _components(ctx: Any, param: Any, value: str) -> Any:
    """One number of kernels, or one per block: 20 or 20,30,40."""
    if value == "auto":
        return value
    try:
        numbers = [int(part) for part in value.split(",")]
    except ValueError:
        raise click.BadParameter(
            f"{value!r} is neither auto nor a number, or one number per block: 20 or 20,30."
        ) from None
    return numbers[0] if len(numbers) == 1 else numbers


def _number_or_auto(kind: type[int] | type[float]) -> Callable[[Any, Any, str], Any]:
    """A number, or auto."""

    def convert(ctx: Any, param: Any, value: str) -> Any:
        try:
            return value if value == "auto" else kind(value)
        except ValueError:
            what = "a whole number" if kind is int else "a number"
            raise click.BadParameter(f"{value!r} is neither {what} nor auto.") from None

    return convert


def _block_weights(ctx: Any, param: Any, value: str) -> Any:
    """A word for how to weigh blocks, or one number per block: 1,0.5."""
    words = {"auto": "auto", "fit": "fit", "equal": None}
    if value in words:
        return words[value]
    try:
        return [float(part) for part in value.split(",")]
    except ValueError:
        raise click.BadParameter(
            f"{value!r} is none of auto, fit, equal, and not one number per block: 1,0.5."
        ) from None


def finite(ctx: Any, param: Any, value: float) -> float:
    """Refuse nan, which is in no range and outside none."""
    if not math.isfinite(value):
        raise click.BadParameter(f"{value} is not a finite number.")
    return value


#: Whoever runs the commands looks for this one itself.
debug_option = click.option(
    "--debug",
    is_flag=True,
    expose_value=False,
    help="Show where an error came from.",
)
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
quiet_option = click.option("-q", "--quiet", is_flag=True, help="No progress, no remarks.")
subset_option = click.option(
    "--subset",
    type=click.Choice(["train", "test", "all"]),
    help="Part of a named image set.  [default: train]",
)
home_option = click.option(
    "--data-home",
    type=click.Path(file_okay=False),
    help="Folder of the named data sets.  [default: $PSKEM_DATA or a cache]",
)
target_option = click.option(
    "-t", "--target", help="Column of the classes; named data sets know theirs."
)
model_argument = click.argument("model", type=click.Path())

#: What both commands that learn from a table take.
learning_options = stack(
    target_option,
    click.option(
        "-o",
        "--output",
        type=click.Path(dir_okay=False),
        help="Model file.  [default: the name of DATA with .pskem; model.pskem for stdin]",
    ),
    click.option("--drop", multiple=True, metavar="COLUMN", help="Leave a column out; repeatable."),
    click.option(
        "--categorical",
        multiple=True,
        metavar="COLUMN",
        help="Take a column of numbers for categories; repeatable.",
    ),
    click.option(
        "--pca",
        type=click.IntRange(1),
        help="Principal components to keep.  [default: all; the paper's number for image sets]",
    ),
    click.option(
        "--random-state",
        "--seed",
        type=click.IntRange(0, 2**32 - 1),
        default=0,
        show_default=True,
        help="Seed.",
    ),
    click.option("--n-jobs", type=int, help="Threads.  [default: all cores]"),
    subset_option,
    home_option,
    quiet_option,
    as_json,
    debug_option,
)

_DEFAULTS = SharedKernelClassifier().get_params()


def _parameter(name: str, help_: str, kind: Any) -> Decorator:
    """An option that mirrors a parameter of the classifier, with its default."""
    return click.option(
        f"--{name.replace('_', '-')}",
        type=kind,
        default=_DEFAULTS[name],
        show_default=True,
        help=help_,
    )


#: The estimator's parameters, under their own names.
model_options = stack(
    click.option(
        "-k",
        "--n-components",
        metavar="INT[,INT...]|auto",
        default="auto",
        show_default=True,
        callback=_components,
        help="Kernels for numeric columns: one number, or one per block; auto goes by rows,"
        " features and classes.",
    ),
    click.option(
        "-r",
        "--n-blocks",
        metavar="INT|auto",
        default="auto",
        show_default=True,
        callback=_number_or_auto(int),
        help="Blocks of numeric columns; auto makes them of at most 100. Categories have"
        " their own.",
    ),
    _parameter("partition", "How features are dealt out.", click.Choice([*ARRANGEMENTS, "ica"])),
    _parameter("covariance_type", "Form of the kernels.", click.Choice(list(STRUCTURES))),
    _parameter("init", "Where EM starts.", click.Choice(list(METHODS))),
    click.option(
        "--init-range",
        type=float,
        nargs=2,
        default=_DEFAULTS["init_range"],
        show_default=True,
        help="Range of the means of the random start.",
    ),
    _parameter("init_scale", "Standard deviation of the random start's kernels.", float),
    _parameter("own_mass", "Share of a class's weight that its own kernels start with.", float),
    _parameter("n_init", "Starts, of which the best is kept.", int),
    click.option(
        "--reg-covar",
        type=float,
        help="Smallest variance of a kernel, relative to that of the data.  [default: 1e-6; 0.1"
        " with categories]",
    ),
    click.option(
        "--shrinkage",
        metavar="FLOAT|auto",
        default="auto",
        show_default=True,
        callback=_number_or_auto(float),
        help="Pseudo-rows of each kernel with the common covariance; auto takes one more than the"
        " features of a block.",
    ),
    _parameter("shrinkage_target", "What covariances shrink to.", click.Choice(TARGETS)),
    _parameter("weight_smoothing", "Pseudo-rows of each class, spread over its kernels.", float),
    click.option(
        "--reseed/--no-reseed",
        default=_DEFAULTS["reseed"],
        show_default=True,
        help="Put kernels that run empty elsewhere.",
    ),
    _parameter("max_iter", "EM passes at most.", int),
    _parameter("tol", "Gain in log likelihood per row below which training stops.", float),
    click.option(
        "--block-weights",
        metavar="auto|fit|equal|FLOAT,...",
        default="auto",
        show_default=True,
        callback=_block_weights,
        help="Weights of the blocks: fitted to held-out rows, equal, or one number per block.",
    ),
    click.option(
        "--discriminative-iter",
        metavar="INT|auto",
        default="auto",
        show_default=True,
        callback=_number_or_auto(int),
        help="Discriminative passes after EM, at most.",
    ),
    _parameter("discriminative_smoothing", "Rows of EM's kernels that such a pass adds.", float),
    click.option(
        "--early-stopping/--no-early-stopping",
        default=None,
        help="Keep the pass with the best validation accuracy, also of EM's; or the last one."
        "  [default: the best discriminative pass, from 1,000 rows on]",
    ),
    _parameter("n_iter_no_change", "Passes without a better one that end early stopping.", int),
    click.option(
        "--priors",
        type=click.Choice(["frequencies", "uniform"]),
        default="frequencies",
        show_default=True,
        help="Class priors.",
    ),
)
