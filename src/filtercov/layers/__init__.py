"""What a depthwise layer is, and the depthwise layers of a model, a state dict or a file in forward order."""
