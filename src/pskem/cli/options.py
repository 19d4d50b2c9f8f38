"""Options that several commands share."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import click

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def stack(*decorators: Decorator) -> Decorator:
    """Combine decorators into one; their options are listed in this order."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


class Numbers(click.ParamType):  # type: ignore[type-arg]  # not generic in all versions
    """A number, or one per block if there may be several, or a word: auto, or what is given."""

    def __init__(self, kind: type[float], several: bool = False, **words: str | None) -> None:
        self.kind, self.several, self.words = kind, several, {"auto": "auto", **words}
        listed = ",..." if several else ""
        self.name = "|".join([f"{'INT' if kind is int else 'FLOAT'}{listed}", *self.words])

    def get_metavar(self, param: Any, ctx: Any = None) -> str:
        return self.name

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        if value in self.words:
            return self.words[value]
        try:
            numbers = [self.kind(part) for part in (value.split(",") if self.several else [value])]
        except ValueError:
            what = "a whole number" if self.kind is int else "a number"
            if self.several:
                what += f" (or one per block: {'20,30' if self.kind is int else '1,0.5'})"
            self.fail(f"{value!r} is neither {what} nor {' or '.join(self.words)}.")
        # One K is for all blocks, but there is no such thing as one weight for all.
        return numbers if self.several and (self.kind is float or numbers[1:]) else numbers[0]


def finite(ctx: Any, param: Any, value: float) -> float:
    """Refuse nan, which passes every range check."""
    if not math.isfinite(value):
        raise click.BadParameter(f"{value} is not a finite number.")
    return value


as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
quiet_option = click.option("-q", "--quiet", is_flag=True, help="No progress, no remarks.")
overwrite_option = click.option(
    "--overwrite", is_flag=True, help="Replace the output file whatever it holds."
)
home_option = click.option(
    "--data-home",
    type=click.Path(file_okay=False),
    help="Folder of the named data sets.  [default: $PSKEM_DATA or a cache]",
)
#: Both are for named data sets.
set_options = stack(
    click.option(
        "--subset",
        type=click.Choice(["train", "test", "all"]),
        help="Part of a named image set.  [default: train]",
    ),
    home_option,
)
target_option = click.option("-t", "--target", help="Class column; not needed for named data sets.")
model_argument = click.argument("model", type=click.Path())

#: Those of the classifier and of its settings with flat names. They stand here as well, because the
#: help should not wait for NumPy; a test compares them.
DEFAULTS: dict[str, Any] = {
    "block_weights": "auto",
    "covariance_type": "auto",
    "discriminative_iter": "auto",
    "init": "auto",
    "init_range": (-2.0, 2.0),
    "init_scale": 2.0,
    "max_iter": 100,
    "n_blocks": "auto",
    "n_components": "auto",
    "n_init": 1,
    "n_iter_no_change": 10,
    "n_views": "auto",
    "own_mass": 1.0,
    "partition": "auto",
    "reg_covar": 1e-6,
    "reseed": True,
    "shrinkage": "auto",
    "shrinkage_target": "diag",
    "tol": 1e-3,
    "unlabelled_weight": "auto",
}
#: What these take, for the same reason.
CHOICES = {
    "covariance_type": ["auto", "full", "tied", "diag", "spherical"],
    "init": ["auto", "class-kmeans", "k-means++", "kmeans", "kdtree", "em", "random"],
    "partition": ["auto", "sequential", "interleaved", "random", "dependence"],
    "shrinkage_target": ["diag", "pooled"],
}


def _parameter(name: str, help_: str, kind: Any = None, *short: str, **more: Any) -> Decorator:
    """An option for a parameter of the classifier, with the same default; one of some choices."""
    kind = click.Choice(CHOICES[name]) if kind is None else kind
    long = f"--{name.replace('_', '-')}"
    return click.option(*short, long, type=kind, default=DEFAULTS[name], help=help_, **more)


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
    click.option(
        "--weights",
        metavar="COLUMN",
        help="Column that says how often each row counts; it is no feature. Whole numbers are taken"
        " for repeats of rows.",
    ),
    click.option(
        "--class-weight",
        type=click.Choice(["equal", "balanced"]),
        default="equal",
        callback=lambda ctx, param, value: None if value == "equal" else value,
        help="Whether all rows count alike, or all classes.",
    ),
    click.option(
        "--unlabelled",
        is_flag=True,
        help="Learn from rows without a class as well: the target column may have empty cells.",
    ),
    _parameter(
        "unlabelled_weight",
        "How often each row without a class counts; auto hides some classes and takes what finds"
        " them best.",
        Numbers(float),
    ),
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
        help="Random seed.",
    ),
    click.option("--n-jobs", type=int, help="Number of threads.  [default: all cores]"),
    click.option(
        "--checkpoint",
        type=click.Path(dir_okay=False),
        help="File that keeps the training as it goes. If it is killed, the same command goes on"
        " from there; the file is removed when the model is saved.",
    ),
    set_options,
    quiet_option,
    as_json,
)

#: The classifier's parameters, under their own names.
model_options = stack(
    _parameter(
        "n_components",
        "Number of kernels for numeric columns, or one number per block; auto depends on the"
        " numbers of rows, features and classes.",
        Numbers(int, several=True),
        "-k",
    ),
    _parameter(
        "n_blocks",
        "Number of blocks of numeric columns; auto makes blocks of at most 100 features. Categories"
        " have a block of their own.",
        Numbers(int),
        "-r",
    ),
    _parameter("partition", "How features are dealt out."),
    _parameter("covariance_type", "Form of the kernels; auto is full, or differs among views."),
    click.option(
        "--margins/--no-margins",
        default=None,
        callback=lambda ctx, param, value: "auto" if value is None else value,
        help="Map columns that are skewed, or take all as they are.  [default: differs among"
        " views]",
    ),
    _parameter(
        "n_views",
        "Models of different forms that are tried and multiplied, at most; auto is 6 if nothing is"
        " said of kernels, blocks, start and shrinkage.",
        Numbers(int),
    ),
    _parameter("init", "Where EM starts."),
    _parameter("init_range", "Range of the means of the random start.", float, nargs=2),
    _parameter("init_scale", "Standard deviation of the random start's kernels.", float),
    _parameter("own_mass", "Share of a class's weight that its own kernels start with.", float),
    _parameter("n_init", "Number of starts; the best is kept.", int),
    _parameter("reg_covar", "Smallest variance of a kernel, relative to that of the data.", float),
    _parameter(
        "shrinkage",
        "Pseudo-rows of each kernel with the common covariance; auto takes one more than the"
        " features of a block.",
        Numbers(float),
    ),
    _parameter("shrinkage_target", "What covariances shrink to."),
    click.option(
        "--reseed/--no-reseed",
        default=DEFAULTS["reseed"],
        help="Put kernels that run empty elsewhere.",
    ),
    _parameter("max_iter", "Maximum number of EM passes of each training.", int),
    _parameter("tol", "Gain in log likelihood per row below which training stops.", float),
    _parameter(
        "block_weights",
        "Weights of the blocks: fitted to held-out rows, equal, or one number per block.",
        Numbers(float, several=True, fit="fit", equal=None),
    ),
    _parameter(
        "discriminative_iter", "Maximum number of discriminative passes after EM.", Numbers(int)
    ),
    click.option(
        "--early-stopping/--no-early-stopping",
        default=None,
        help="Keep the pass with the best validation accuracy, of EM too, or the last pass."
        "  [default: rows are asked about in turn, or held out from 20,000 rows on]",
    ),
    _parameter("n_iter_no_change", "Stop after this many passes without improvement.", int),
    click.option(
        "--priors",
        type=click.Choice(["frequencies", "uniform"]),
        default="frequencies",
        help="Class priors.",
    ),
)
