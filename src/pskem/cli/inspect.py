"""pskem inspect: show the content of a model file."""

from __future__ import annotations

from typing import Any

import click
import numpy as np

from pskem.cli.console import facts, percent, print_json, show
from pskem.cli.options import as_json, model_argument
from pskem.display import Table
from pskem.margins import Margins
from pskem.structures import FloatArray
from pskem.training import as_shrinkage

#: Classes in the table of blocks, at most.
SHOWN = 12
#: Characters of a printed parameter, at most.
LONGEST = 60
#: Parameters of these types are JSON values; of others, the repr is shown.
PLAIN = (bool, int, float, str, type(None))


@click.command(
    epilog="""\b
Examples:
  pskem inspect flowers.pskem
  pskem inspect flowers.pskem --json"""
)
@model_argument
@as_json
def inspect(model: str, as_json: bool) -> None:
    """Show the parameters, blocks, kernels per class and shared proportion of a model file.

    A class holds a kernel if its weight is at least 0.01. Loading a model file runs no code, so
    files of unknown origin are safe to inspect.
    """
    from pskem.display import take_apart
    from pskem.model import HELD, shared_proportion
    from pskem.persistence import load_with_header
    from pskem.workflow import TABLE

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
                "blocks": [
                    {
                        "features": block.features,
                        "n_components": len(block.means),
                        "covariance_type": block.covariance_type,
                        "kernels_per_class": n,
                        "weight": weight,
                    }
                    for block, n, weight in zip(blocks, held, weights, strict=True)
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
    headings = ["block", "features", "kernels", "covariance", "weight"]
    counts = [
        (r, len(b.features), len(b.means), b.covariance_type, f"{weight:.3g}", *n[:SHOWN])
        for r, (b, n, weight) in enumerate(zip(blocks, held, weights, strict=True))
    ]
    show(Table([*headings, *(f"held by {c}" for c in classes[:SHOWN])], counts))


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
