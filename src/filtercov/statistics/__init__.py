"""The mean and covariance of every depthwise layer of a model: measured, resized, saved and loaded."""
