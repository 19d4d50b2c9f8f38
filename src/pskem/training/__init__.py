"""Training: from settings and samples to a model."""
