"""pskem inspect: what is in a model file."""

from __future__ import annotations

from typing import Any

import click
import numpy as np

from pskem.cli.console import facts, percent, print_json, table
from pskem.cli.options import as_json, debug_option, model_argument

__all__ = ["inspect"]

#: Classes whose kernels the table counts.
SHOWN = 12
#: Characters of a parameter.
LONGEST = 60


@click.command(
    epilog="""\b
Examples:
  pskem inspect flowers.pskem
  pskem inspect flowers.pskem --json"""
)
@model_argument
@as_json
@debug_option
def inspect(model: str, as_json: bool) -> None:
    """Show what is in a model file: parameters, blocks, kernels per class, shared proportion.

    A class holds a kernel if its weight is at least 0.01. Loading a model file runs nothing, so it
    is safe to inspect one of unknown origin.
    """
    from pskem.model import HELD, shared_proportion
    from pskem.persistence import load, read_header
    from pskem.workflow.task import TABLE

    header, loaded = read_header(model), load(model)
    classifier = loaded[-1] if hasattr(loaded, "steps") else loaded
    members = _members(classifier)
    if not members:
        raise click.ClickException(f"{model} holds no fitted model of pskem's.")
    blocks = [block for member in members for block in member.blocks_]
    steps = [name for name, _ in loaded.steps[:-1]] if loaded is not classifier else []
    classes = getattr(classifier, "classes_", np.array(["density"]))
    held = [(block.weights >= HELD).sum(axis=1) for block in blocks]  # R arrays (L,)
    shared = shared_proportion(blocks, HELD)
    weights = np.concatenate(
        [getattr(member, "block_weights_", np.ones(len(member.blocks_))) for member in members]
    )
    temperatures = [getattr(member, "temperature_", 1.0) for member in members]
    if as_json:
        print_json(
            {
                "model": type(classifier).__name__,
                "format_version": header.format_version,
                "versions": header.versions,
                "metadata": header.metadata,
                "steps": steps,
                "parameters": {
                    name: _json(value) for name, value in classifier.get_params().items()
                },
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
        [
            ("model", type(classifier).__name__),
            ("before it", ", ".join(steps) or "nothing"),
            *[(key, about[key]) for key in ("source", "target") if key in about],
            ("written by", ", ".join(f"{k} {v}" for k, v in header.versions.items())),
            ("classes", len(classes)),
            *([("members", len(members))] if len(members) > 1 else []),
            ("passes", ", ".join(str(member.n_iter_) for member in members)),
            ("shared proportion", percent(shared)),
        ]
    )
    table(
        ["parameter", "value"],
        [(name, _short(value)) for name, value in sorted(classifier.get_params().items())],
        left=2,
    )
    table(
        [
            *("block", "features", "kernels", "covariance", "weight"),
            *(f"held by {c}" for c in classes[:SHOWN]),
        ],
        [
            (r, len(b.features), len(b.means), b.covariance_type, f"{weight:.3g}", *n[:SHOWN])
            for r, (b, n, weight) in enumerate(zip(blocks, held, weights, strict=True))
        ],
    )


def _members(classifier: Any) -> list[Any]:
    """The fitted models that an estimator consists of: itself, its choice, or several."""
    if hasattr(classifier, "estimators_"):
        return list(classifier.estimators_)
    chosen = getattr(classifier, "best_estimator_", classifier)
    return [chosen] if hasattr(chosen, "blocks_") else []


def _short(value: Any) -> str:
    """A parameter on one line that fits."""
    text = " ".join(repr(value).split())
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


def _json(value: Any) -> Any:
    """A parameter as it is, if JSON has it, else as Python writes it."""
    return value if value is None or isinstance(value, bool | int | float | str) else repr(value)
