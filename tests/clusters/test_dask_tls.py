"""A cluster that encrypts and authenticates, set up as docs/large.md says."""

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from clustered import MARKS, dask, distributed
from pskem import load
from pskem.cli.app import run

PAGE = Path(__file__).parents[2] / "docs" / "large.md"
pytestmark = [
    *MARKS,
    pytest.mark.skipif(not PAGE.exists(), reason="the page is not beside the tests"),
    pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed"),
]


@pytest.fixture
def settings(tmp_path):
    """What the page says, for those of a cluster and for a stranger."""
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    cert, key = certificate(tmp_path, "ours")
    return read(text, cert, key), read(text, *certificate(tmp_path, "stranger"))


def certificate(folder, name):
    """A certificate that is its own authority, and its key."""
    cert, key = str(folder / f"{name}.pem"), str(folder / f"{name}-key.pem")
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}"]
    subprocess.run([*made, "-keyout", key, "-out", cert], check=True, capture_output=True)
    return cert, key


def read(text, cert, key):
    """The page's settings, with one certificate for all."""
    import yaml

    text = re.sub(r"\b(ca|scheduler|worker|client)\.pem", cert, text)
    return flat(yaml.safe_load(re.sub(r"\b(scheduler|worker|client)-key\.pem", key, text)))


def flat(settings, before=""):
    """With names such as distributed.comm.tls.ca-file."""
    found = {}
    for name, value in settings.items():
        more = (
            flat(value, f"{before}{name}.") if isinstance(value, dict) else {before + name: value}
        )
        found |= more
    return found


def test_only_who_has_a_certificate_trains_on_it(settings, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=21_000)
    X = rng.standard_normal((len(y), 2)) + 2.0 * y[:, None]
    pd.DataFrame(X, columns=list("ab")).assign(kind=y).to_parquet("table.parquet")
    fit = ["fit", "table.parquet", "-t", "kind", "-k", "4", "--max-iter", "3", "--tol", "0"]
    options = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0"}
    ours, strangers = settings
    with (
        dask.config.set(ours),
        distributed.LocalCluster(
            protocol="tls://", security=distributed.Security(), processes=True, **options
        ) as made,
    ):
        address = made.scheduler_address
        assert address.startswith("tls://")
        assert run([*fit, "--scheduler", address, "-o", "one.pskem"]) == 0
        monkeypatch.setattr("pskem.cli.cluster.PATIENCE", 3)  # with those that must fail
        with dask.config.set({"distributed.comm.require-encryption": False}):
            plain = address.replace("tls://", "tcp://")
            assert run([*fit, "--scheduler", plain, "-o", "two.pskem"]) == 1
        assert "There is no Dask scheduler at tcp://" in capsys.readouterr().err
        assert run([*fit, "--scheduler", plain, "-o", "two.pskem"]) == 1
        assert "TLS needs certificates" in capsys.readouterr().err
        with dask.config.set(strangers):
            assert run([*fit, "--scheduler", address, "-o", "two.pskem"]) == 1
        assert "There is no Dask scheduler at tls://" in capsys.readouterr().err
    assert load("one.pskem").score(pd.DataFrame(X, columns=list("ab")), y) > 0.85
    assert not Path("two.pskem").exists()
