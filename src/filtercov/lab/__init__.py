"""The laboratory: networks, data, training, the paper's experiments and reports. The library knows nothing of it."""
