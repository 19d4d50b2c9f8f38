"""pskem study: an experiment of one's own."""

from __future__ import annotations

from typing import Any

import click

from pskem.cli.studying import carry_out, study_options

__all__ = ["study"]


@click.command(
    epilog="""\b
Examples:
  pskem study my.toml
  pskem study my.toml --runs 20 --jobs 2 --out results
\b
A study of the K and the blocks for a table, my.toml:
  runs = 5
  data = { source = "flowers.csv", target = "species" }
  split = { folds = 5 }
  validation = { folds = 3 }
  [[experiment]]
  name = "shared kernels"
  grid = { n_components = [6, 12], n_blocks = [1, 2] }
  [[experiment]]
  name = "others"
  method = ["lda", "rbf-svm", { name = "knn", n_neighbors = 5 }]"""
)
@click.argument("definition", type=click.Path(dir_okay=False))
@study_options
def study(definition: str, **options: Any) -> int:
    """Run the study that the TOML file DEFINITION describes, and write a report.

    The runner is that of "pskem reproduce": runs are kept one by one, and the same command goes on
    where it was stopped. docs/studies.md describes the file.
    """
    from pskem.study import load_study

    return carry_out([load_study(definition)], **options)
