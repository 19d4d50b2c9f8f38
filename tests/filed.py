"""Rows of files, for tests of tables that are read piece by piece."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq

from pskem import SharedKernelClassifier

N = 21_000


def planted():
    """Numbers with gaps, a category with gaps, weights, and rows without a class."""
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=N)
    centres = rng.standard_normal((3, 4)) * 1.5
    X = centres[y] + rng.standard_normal((N, 4))
    frame = pd.DataFrame(X, columns=list("abcd"))
    frame.loc[rng.random(N) < 0.02, "b"] = np.nan
    frame["colour"] = np.array(["red", "green", "blue"])[(y + (rng.random(N) < 0.3)) % 3]
    frame.loc[rng.random(N) < 0.01, "colour"] = None
    frame["count"] = rng.integers(1, 4, size=N)
    frame["kind"] = np.array(["iris", "rose", "tulip"])[y]
    return frame


def write(frame, kind, folder):
    path = folder / f"table.{kind}"
    if kind == "parquet":
        pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), path, row_group_size=7000)
    elif kind == "arrow":
        table = pa.Table.from_pandas(frame, preserve_index=False)
        pyarrow.feather.write_feather(table, path, compression="uncompressed")
    else:
        frame.to_csv(path, index=False, sep="\t" if "tsv" in kind else ",")
    return path


def classifier():
    passes = {"max_iter": 4, "tol": 0.0, "discriminative_iter": 2}
    return SharedKernelClassifier(n_components=6, random_state=0, **passes)
