"""pskem inspect: show the content of a model file."""

from __future__ import annotations

import click

from pskem.cli.options import as_json, model_argument


@click.command(
    epilog="""\b
Examples:
  pskem inspect flowers.pskem
  pskem inspect flowers.pskem --json"""
)
@model_argument
@as_json
def inspect(model: str, as_json: bool) -> None:
    """Show the parameters, views, blocks, kernels per class and shared proportion of a model file.

    Views are models of different forms whose probabilities are multiplied, each raised to its
    exponent. Their log loss was measured on rows that they were not trained on. A class holds a
    kernel if its weight is at least 0.01. Loading a model file runs no code, so files of unknown
    origin are safe to inspect.
    """
    from pskem.cli.inspecting import show_model

    show_model(model, as_json)
