"""Leave out the modules of frameworks that are not installed, and give Keras one to compute with."""

import os
from importlib.util import find_spec

collect_ignore = [f"src/filtercov/{name}.py" for name in ("jax", "keras") if find_spec(name) is None]

os.environ.setdefault("KERAS_BACKEND", "jax" if find_spec("jax") else "torch")  # its own default is TensorFlow
