"""What pskem inspect shows of a model file."""

from __future__ import annotations

from typing import Any

import click
import numpy as np

from pskem.cli.console import facts, percent, print_json, show
from pskem.display import Table, take_apart
from pskem.margins import Margins
from pskem.model import HELD, shared_proportion
from pskem.persistence import load_with_header
from pskem.structures import FloatArray
from pskem.training import as_shrinkage
from pskem.workflow import TABLE

#: Classes in the table of blocks, at most.
SHOWN = 12
#: Characters of a printed parameter, at most.
LONGEST = 60
#: Parameters of these types are JSON values; of others, the repr is shown.
PLAIN = (bool, int, float, str, type(None))


def show_model(model: str, as_json: bool) -> None:
    """Print a model file, or the same as JSON."""
    loaded, header = load_with_header(model)
    try:
        fitted = take_apart(loaded)
    except ValueError as error:
        raise click.ClickException(f"{model} cannot be shown. {error}") from None
    members = fitted.models
    classifier = loaded[-1] if hasattr(loaded, "steps") else loaded
    classes = getattr(classifier, "classes_", np.array(["density"]))
    blocks = [block for member in members for block in member.blocks_]
    steps = [name for name, _ in fitted.before]
    held = [(block.weights >= HELD).sum(axis=1) for block in blocks]  # R arrays (L,)
    shared = shared_proportion(blocks, HELD)
    weights = np.concatenate(
        [getattr(member, "block_weights_", np.ones(len(member.blocks_))) for member in members]
    )
    chosen = _chosen(members, weights)
    view_of, views = _views(members)
    temperatures = [getattr(member, "temperature_", 1.0) for member in members]
    if as_json:
        print_json(
            {
                "model": type(classifier).__name__,
                **header._asdict(),
                "steps": steps,
                "parameters": {
                    name: value if isinstance(value, PLAIN) else repr(value)
                    for name, value in classifier.get_params().items()
                },
                "chosen": chosen,
                "classes": classes,
                "views": views,
                "blocks": [
                    {
                        "view": view,
                        "features": block.features,
                        "n_components": len(block.means),
                        "covariance_type": block.covariance_type,
                        "kernels_per_class": n,
                        "weight": weight,
                    }
                    for view, block, n, weight in zip(view_of, blocks, held, weights, strict=True)
                ],
                "members": len(members),
                "temperature": temperatures[0] if len(members) == 1 else temperatures,
                "shared_proportion": shared,
            }
        )
        return
    about = header.metadata.get(TABLE, {})
    facts(
        ("model", type(classifier).__name__),
        ("before it", ", ".join(steps) or "nothing"),
        ("source", about.get("source")),
        ("target", about.get("target")),
        ("written by", ", ".join(f"{k} {v}" for k, v in header.versions.items())),
        ("classes", len(classes)),
        ("members", len(members) if len(members) > 1 else None),
        ("passes", ", ".join(map(_passes, members))),
        ("shared proportion", percent(shared)),
    )
    parameters = sorted(classifier.get_params().items())
    rows = [(name, _short(value), _auto(name, value, chosen)) for name, value in parameters]
    show(Table(["parameter", "value", "chosen"], rows, left=3))
    several = max(view_of) > 0
    if several and views:
        show(_view_table(views))
    headings = ["block", *["view"] * several, "features", "kernels", "covariance", "weight"]
    counts = [
        (
            *(r, view)[: 1 + several],
            len(b.features),
            len(b.means),
            b.covariance_type,
            f"{weight:.3g}",
            *n[:SHOWN],
        )
        for r, (view, b, n, weight) in enumerate(zip(view_of, blocks, held, weights, strict=True))
    ]
    show(Table([*headings, *(f"held by {c}" for c in classes[:SHOWN])], counts))


def _views(models: list[Any]) -> tuple[list[int], list[dict[str, Any]]]:
    """To which view each block belongs, counted through all models, and the trials of the views.

    `n_components` are those of the trained blocks; trials had fewer rows, and other numbers.
    """
    view_of: list[int] = []
    views: list[dict[str, Any]] = []
    for model in models:
        first = max(view_of, default=-1) + 1
        own = getattr(model, "block_views_", np.zeros(len(model.blocks_), dtype=int)).tolist()
        view_of += [first + view for view in own]
        trials = {trial.get("view"): trial for trial in getattr(model, "trials_", ())}
        for view in sorted(set(own) & set(trials)):
            kernels = [len(b.means) for b, v in zip(model.blocks_, own, strict=True) if v == view]
            found = {**trials[view], "view": first + view, "n_components": kernels}
            views.append({"form": _form(trials[view]), **found})
    return view_of, views


def _form(trial: dict[str, Any]) -> str:
    """A form of model in words."""
    if trial["local"]:
        parts = ["a kernel at every row"]
    elif trial["linear"]:
        parts = ["linear in steps of the numbers"]
    else:
        parts = [f"{trial['covariance_type']} covariances"]
    more = {
        "margins": "mapped features",
        "fine": "many kernels",
        "fine_categories": "many kernels of categories",
        "categories_as_numbers": "categories as numbers",
    }
    return ", ".join([*parts, *(text for name, text in more.items() if trial[name])])


def _view_table(views: list[dict[str, Any]]) -> Table:
    headings = ["view", "form", "kernels", "discriminative passes", "held-out log loss", "exponent"]
    rows = [
        (
            view["view"],
            view["form"],
            ", ".join(map(str, view["n_components"])),
            view["discriminative_iter"],
            f"{view['log_loss']:.4f}",
            f"{view['exponent']:.3g}",
        )
        for view in views
    ]
    return Table(headings, rows, left=2)


def _chosen(models: list[Any], weights: FloatArray) -> dict[str, list[Any]]:
    """What a fit chose where a parameter is "auto": for each model, or for each block."""
    blocks = [(model, block) for model in models for block in model.blocks_]
    return {
        "n_blocks": [len(model.blocks_) for model in models],
        "n_components": [len(block.means) for _, block in blocks],
        "covariance_type": [block.covariance_type for _, block in blocks],
        "margins": [isinstance(block.reading, Margins) for _, block in blocks],
        "n_views": [getattr(model, "n_views_", 1) for model in models],
        "shrinkage": [
            as_shrinkage(model.shrinkage).amount(
                block.structure,
                block.kernels.means.shape[1],
                unlabelled=bool(getattr(model, "unlabelled_weight_", None)),
            )
            for model, block in blocks
        ],
        "unlabelled_weight": [getattr(model, "unlabelled_weight_", None) for model in models],
        "block_weights": np.round(weights, 3).tolist(),
        "discriminative_iter": [
            max(0, len(getattr(model, "log_posteriors_", ())) - 1) for model in models
        ],
        "early_stopping": [len(getattr(m, "discriminative_scores_", ())) > 0 for m in models],
    }


def _auto(name: str, value: Any, chosen: dict[str, list[Any]]) -> str:
    """What "auto" stands for, once if it is the same everywhere."""
    found = chosen.get(name.removeprefix("estimator__"))
    if found is None or not isinstance(value, str) or value != "auto":
        return ""
    return _short(found[0] if found == found[:1] * len(found) else found)


def _passes(model: Any) -> str:
    kept = getattr(model, "discriminative_best_iter_", 0)
    return f"{model.n_iter_} of EM" + f" and {kept} discriminative" * bool(kept)


def _short(value: Any) -> str:
    """A parameter on one short line."""
    text = " ".join(repr(value).split())
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."
