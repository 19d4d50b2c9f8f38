"""Speed, scaling, memory and import time of pskem, and whole fits beside other classifiers.

``python -m benchmarks``, from the root of the repository, measures and writes
``benchmarks/results/benchmark.json`` and ``benchmark.png``; ``python -m benchmarks.report`` then
writes the tables of ``benchmarks/README.md`` and ``README.md`` from the JSON.
"""
