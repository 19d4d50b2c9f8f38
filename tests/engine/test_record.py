"""Fits recorded before the engine was rebuilt: from the same starts, the same likelihoods.

``record/fits.npz`` holds, for sixteen fits, the settings, the start in the units of the data, the
log likelihoods of each pass and of each discriminative pass, and the predictions. It was written by
the code as it was before sources, moments and states, so that whoever changes the engine can tell a
change of rounding from a change of the mathematics.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits, load_iris, load_wine

from pskem import SharedKernelClassifier
from pskem.starts import Start
from pskem.workflow import classifier_settings

RECORD = np.load(Path(__file__).parent / "record" / "fits.npz")
INDEX = json.loads(RECORD["index"].tobytes())
#: Passes that are compared, and how closely: EM amplifies the rounding of float32 at once.
PASSES = {np.dtype(np.float64): (20, 1e-9), np.dtype(np.float32): (1, 1e-6)}


def data(name):
    if name.startswith("iris"):
        X, y = load_iris(return_X_y=True)
        return (X + 1e5 if name == "iris-far" else X), y
    if name == "wine":
        return load_wine(return_X_y=True)
    X, y = load_digits(return_X_y=True)
    if name == "digits-wide":
        X, y = X[y < 2], y[y < 2]
        return X[:, X.std(axis=0) > 0.5], y
    X, y = X[:600, [10, 13, 18, 20, 21, 26, 28, 33, 36, 38, 42, 43]], y[:600]
    return (X.astype(np.float32) if name == "digits32" else X), y


@pytest.mark.filterwarnings("ignore:Kernels")
@pytest.mark.parametrize("name", list(INDEX))
def test_from_the_same_start_the_same_fit(name, monkeypatch):
    # Since then steps of discriminative passes grow; these did not.
    monkeypatch.setattr("pskem.engine._discriminative.NEXT_STEP", 1.0)
    entry = INDEX[name]
    i, R = entry["place"], entry["n_blocks"]
    X, y = data(entry["data"])
    start = {
        part: [RECORD[f"{i}/{r}/{part}"] for r in range(R)]
        for part in ("weights", "means", "covariances")
    }
    model = SharedKernelClassifier(
        **classifier_settings(entry["settings"]),
        init=Start(**start),
        n_components=[len(means) for means in start["means"]],
        partition=[RECORD[f"{i}/{r}/features"] for r in range(R)],
    ).fit(X, y)
    n, tolerance = PASSES[X.dtype]
    for trace in ("log_likelihoods", "log_posteriors"):
        expected, found = RECORD[f"{i}/{trace}"], getattr(model, f"{trace}_")
        assert found.shape == expected.shape
        np.testing.assert_allclose(found[:n], expected[:n], rtol=tolerance)
    if X.dtype == np.float32:
        return
    close_call = RECORD[f"{i}/margins"] < 1e-6
    same = model.predict(X) == RECORD[f"{i}/predictions"]
    assert (same | close_call).all()
