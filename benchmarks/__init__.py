"""Speed, scaling, memory and import time of pskem, beside other trainers of Gaussian mixtures.

``python -m benchmarks``, from the root of the repository, measures and writes
``benchmarks/results/benchmark.json`` and ``benchmark.png``; ``python -m benchmarks.report`` then
writes the table of the README from the JSON.
"""
