"""Files: written whole or not at all, within limits, locked while they are shared."""
