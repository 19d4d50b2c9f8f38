"""The engine: samples in batches, kernels, passes over them."""
