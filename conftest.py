"""Leave out the modules of frameworks that are not installed, whose examples could not run."""

from importlib.util import find_spec

collect_ignore = [f"src/filtercov/{name}.py" for name in ("jax", "keras") if find_spec(name) is None]
