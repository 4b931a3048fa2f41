"""What a depthwise layer is, and where depthwise weights are found: in models, state dicts and files from anywhere."""
