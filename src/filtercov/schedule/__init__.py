"""σ as a function of depth: the paper's schedules and settings, and the one nearest to measured statistics."""
