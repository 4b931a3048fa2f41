"""What a depthwise layer is, and in which order they come: in a model, a state dict, or a file from anywhere."""
