"""Depthwise layers: find them in models and files, draw their filters, and write those."""
