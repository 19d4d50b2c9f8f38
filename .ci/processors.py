"""Run the tests as if on other processors: an old one, one with AVX2, one with AVX-512.

OpenBLAS takes its kernels, and with them the order of its sums, from OPENBLAS_CORETYPE; NumPy does
without the vector code that NPY_DISABLE_CPU_FEATURES names. The processor at hand is left out, and
what it cannot run. Arguments go to pytest.
"""

import os
import platform
import subprocess
import sys

import scipy.linalg  # noqa: F401  (it has an OpenBLAS of its own)
from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__
from threadpoolctl import threadpool_info

here = {library.get("architecture") for library in threadpool_info()}
vector_code = [name for name in __cpu_dispatch__ if __cpu_features__[name]]
avx512 = [name for name in vector_code if name.startswith("AVX512") or name == "X86_V4"]
without = {"Nehalem": vector_code, "Haswell": avx512}
if avx512:
    without["SkylakeX"] = []

failed = []
for name, missing in without.items():
    if name in here or platform.machine() not in ("x86_64", "AMD64"):
        continue
    setting = {"OPENBLAS_CORETYPE": name, "NPY_DISABLE_CPU_FEATURES": ",".join(missing)}
    print("+", *(f"{key}={value}" for key, value in setting.items()), "pytest", flush=True)
    command = [sys.executable, "-m", "pytest", *sys.argv[1:]]
    if subprocess.run(command, env=os.environ | setting).returncode != 0:
        failed.append(name)
sys.exit(f"Tests fail as if on: {', '.join(failed)}" if failed else 0)
