"""pskem study: run a study of your own."""

from __future__ import annotations

from typing import Any

import click

from pskem.cli.run_studies import run_studies, study_options


@click.command(
    epilog="""\b
Examples:
  pskem study my.toml
  pskem study my.toml --runs 20 --jobs 2 --out results
\b
A study of K and the number of blocks on a table, my.toml:
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
    """Run the study in the TOML file DEFINITION and write a report.

    Every run is recorded in a file. If you stop the command, run it again to continue.
    docs/studies.md describes the format of DEFINITION.
    """
    from pskem.study import load_study

    return run_studies([load_study(definition)], **options)
