"""Options that several commands share."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import click

from pskem.blocks import ARRANGEMENTS
from pskem.estimators import SharedKernelClassifier
from pskem.starts import STARTS, ClassKMeans, Uniform
from pskem.structures import STRUCTURES
from pskem.training import Shrinkage

__all__ = [
    "as_json",
    "debug_option",
    "finite",
    "home_option",
    "learning_options",
    "model_argument",
    "model_options",
    "overwrite_option",
    "quiet_option",
    "stack",
    "subset_option",
    "target_option",
]

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def stack(*decorators: Decorator) -> Decorator:
    """Combine decorators into one; their options are listed in this order."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


def _components(ctx: Any, param: Any, value: str) -> Any:
    """Parse a number of kernels, or one per block: 20 or 20,30,40."""
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
    """Make a parser of a number or auto."""

    def convert(ctx: Any, param: Any, value: str) -> Any:
        try:
            return value if value == "auto" else kind(value)
        except ValueError:
            what = "a whole number" if kind is int else "a number"
            raise click.BadParameter(f"{value!r} is neither {what} nor auto.") from None

    return convert


def _block_weights(ctx: Any, param: Any, value: str) -> Any:
    """Parse auto, fit, equal, or one weight per block: 1,0.5."""
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
    """Refuse nan, which passes every range check."""
    if not math.isfinite(value):
        raise click.BadParameter(f"{value} is not a finite number.")
    return value


#: Only for the help: ``app.run`` looks for --debug itself.
debug_option = click.option(
    "--debug",
    is_flag=True,
    expose_value=False,
    help="Show the traceback of an error.",
)
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
quiet_option = click.option("-q", "--quiet", is_flag=True, help="No progress, no remarks.")
overwrite_option = click.option(
    "--overwrite", is_flag=True, help="Replace the output file whatever it holds."
)
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
target_option = click.option("-t", "--target", help="Class column; not needed for named data sets.")
model_argument = click.argument("model", type=click.Path())

#: Options of fit and tune.
learning_options = stack(
    target_option,
    click.option(
        "-o",
        "--output",
        type=click.Path(dir_okay=False),
        help="Model file.  [default: the name of DATA with .pskem; model.pskem for stdin]",
    ),
    overwrite_option,
    click.option("--drop", multiple=True, metavar="COLUMN", help="Leave a column out; repeatable."),
    click.option(
        "--categorical",
        multiple=True,
        metavar="COLUMN",
        help="Treat a column of numbers as categories; repeatable.",
    ),
    click.option(
        "--pca",
        type=click.IntRange(1),
        help="Number of principal components.  [default: all; the paper's number for image sets]",
    ),
    click.option("--ica", is_flag=True, help="Unmix the features into independent components."),
    click.option(
        "--random-state",
        "--seed",
        type=click.IntRange(0, 2**32 - 1),
        default=0,
        show_default=True,
        help="Random seed.",
    ),
    click.option("--n-jobs", type=int, help="Number of threads.  [default: all cores]"),
    subset_option,
    home_option,
    quiet_option,
    as_json,
    debug_option,
)

_UNIFORM = Uniform()
_DEFAULTS = {
    **SharedKernelClassifier().get_params(),
    "init_range": (_UNIFORM.low, _UNIFORM.high),
    "init_scale": _UNIFORM.scale,
    "own_mass": ClassKMeans().own_mass,
    "reseed": True,
    "shrinkage_target": Shrinkage().target,
}


def _parameter(name: str, help_: str, kind: Any) -> Decorator:
    """An option for a parameter of the classifier, with the same default."""
    return click.option(
        f"--{name.replace('_', '-')}",
        type=kind,
        default=_DEFAULTS[name],
        show_default=True,
        help=help_,
    )


#: The classifier's parameters, under their own names.
model_options = stack(
    click.option(
        "-k",
        "--n-components",
        metavar="INT[,INT...]|auto",
        default="auto",
        show_default=True,
        callback=_components,
        help="Number of kernels for numeric columns, or one number per block; auto depends on the"
        " numbers of rows, features and classes.",
    ),
    click.option(
        "-r",
        "--n-blocks",
        metavar="INT|auto",
        default="auto",
        show_default=True,
        callback=_number_or_auto(int),
        help="Number of blocks of numeric columns; auto makes blocks of at most 100 features."
        " Categories have their own blocks.",
    ),
    _parameter("partition", "How features are dealt out.", click.Choice(ARRANGEMENTS)),
    _parameter("covariance_type", "Form of the kernels.", click.Choice(list(STRUCTURES))),
    _parameter("init", "Where EM starts.", click.Choice(list(STARTS))),
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
    _parameter("n_init", "Number of starts; the best is kept.", int),
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
    _parameter("shrinkage_target", "What covariances shrink to.", click.Choice(["diag", "pooled"])),
    click.option(
        "--reseed/--no-reseed",
        default=_DEFAULTS["reseed"],
        show_default=True,
        help="Put kernels that run empty elsewhere.",
    ),
    _parameter("max_iter", "Maximum number of EM passes.", int),
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
        help="Maximum number of discriminative passes after EM.",
    ),
    click.option(
        "--early-stopping/--no-early-stopping",
        default=None,
        help="Keep the pass with the best validation accuracy, of EM too, or the last pass."
        "  [default: the best discriminative pass, from 1,000 rows on]",
    ),
    _parameter("n_iter_no_change", "Stop after this many passes without improvement.", int),
    click.option(
        "--priors",
        type=click.Choice(["frequencies", "uniform"]),
        default="frequencies",
        show_default=True,
        help="Class priors.",
    ),
)
