"""On what the figures were measured."""

from __future__ import annotations

import os
import platform
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_info

__all__ = ["describe", "load", "n_cores"]


def n_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _features() -> list[str]:
    """The instruction sets for which NumPy has code that this processor runs."""
    core = "numpy._core" if int(np.__version__.split(".")[0]) >= 2 else "numpy.core"
    features = import_module(f"{core}._multiarray_umath").__cpu_features__
    return [name for name, found in features.items() if found]


def _dispatched_exp() -> dict[str, str]:
    """Which of its variants of exp NumPy uses here; empty where NumPy does not tell."""
    try:
        from numpy.lib.introspect import opt_func_info
    except ImportError:  # NumPy 1
        return {}
    variants = opt_func_info(func_name="^exp$").get("exp", {})
    names = {"float64": "dd", "float32": "ff"}
    return {dtype: variants[key]["current"] for dtype, key in names.items() if key in variants}


def describe() -> dict[str, Any]:
    """Processor, instruction sets, BLAS and versions."""
    features = _features()
    pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    blas = [
        pool for pool in pools if "numpy" in pool["filepath"]
    ] or pools  # SciPy may have its own
    return {
        "processor": _processor(),
        "cores": n_cores(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": version("scipy"),
        "scikit-learn": version("scikit-learn"),
        "pskem": version("pskem"),
        "blas": [f"{b['internal_api']} {b['version']} ({b.get('architecture')})" for b in blas],
        "numpy_cpu_features": features,
        # NumPy has vector code for exp of float64 only where there is AVX512.
        "avx512": any(name.startswith("AVX512") or name == "X86_V4" for name in features),
        "numpy_exp": _dispatched_exp(),
    }


def load() -> float | None:
    """Load average of the last minute: above 0 before a run, others are at work as well."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None
