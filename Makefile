# `make demo` and `make test` each work from a clean clone; set-up is repeated only when what it depends on changed.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
PIP := $(BIN)/pip --disable-pip-version-check --quiet install
NATIVE := $(wildcard src/filtercov/csrc/*)
WITH_PACKAGE = PYTHONPATH="$(CURDIR)/src:$$(echo $(CURDIR)/.venv/lib/python3*/site-packages)"
WITH_TRITON = $(WITH_PACKAGE) .venv-gpu/bin/python
PYTHON_CODE := src tests benchmarks examples tools conftest.py setup.py

.PHONY: demo test test-all test-slow test-gpu test-frameworks test-wheel lint types pytest docs wheel clean

demo: .venv/package
	$(BIN)/filtercov demo --out demo

# Types are checked beside the tests, so that both processors have something to do until the end.
test: .venv/peers lint
	$(MAKE) --no-print-directory --jobs 2 types pytest

pytest:
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q --numprocesses 2 --dist loadscope --no-loadscope-reorder

# Everything: kills, hostile files, sanitizers, every timm family, notebooks, site, documented commands, frameworks, wheel.
test-all: test test-slow test-frameworks test-gpu test-wheel

test-slow: .venv/peers .venv-docs/ready
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -m 'slow or faults' --numprocesses 2 --dist loadscope

# In an environment of their own: JAX and Lightning start threads when they are imported, and other tests fork. Tests of a
# framework that is missing would skip, so JAX and Keras are imported first.
test-frameworks: .venv/peers
	$(PYTHON) -m venv .venv-frameworks
	.venv-frameworks/bin/pip --disable-pip-version-check --quiet install --no-deps -r requirements-frameworks.lock
	KERAS_BACKEND=jax $(WITH_PACKAGE) .venv-frameworks/bin/python -c 'import flax.nnx, optax, keras'
	$(WITH_PACKAGE) .venv-frameworks/bin/python -m pytest -q tests/test_jax.py tests/test_keras.py tests/test_examples.py

# Without a GPU: Triton's interpreter computes, and its compilers compile. Triton is about 700 megabytes.
test-gpu: .venv/peers .venv-gpu/ready
	TRITON_INTERPRET=1 $(WITH_TRITON) -m pytest -q tests/gpu
	$(WITH_TRITON) -m pytest -q tests/gpu/test_machine_code.py

# In fresh environments without a compiler, one an extra; it downloads about a gigabyte.
test-wheel: wheel
	$(PYTHON) tools/check_wheel.py

lint: .venv/dev
	$(BIN)/ruff format --check $(PYTHON_CODE)
	$(BIN)/ruff check $(PYTHON_CODE)

types:
	$(BIN)/mypy

docs: .venv-docs/ready
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict --quiet

# On Linux the wheel is named for what it runs on; OpenMP's library stays torch's, as two in a process disagree.
wheel: .venv-wheel/ready
	rm -rf dist
	.venv-wheel/bin/python -m build --no-isolation
	if ls dist/*-linux_*.whl >/dev/null 2>&1; then \
	  PATH="$(CURDIR)/.venv-wheel/bin:$$PATH" auditwheel repair --exclude libgomp.so.1 -w dist dist/*-linux_*.whl && \
	  rm dist/*-linux_*.whl; fi
	.venv-wheel/bin/twine check --strict dist/*

clean:
	rm -rf .venv .venv-docs .venv-frameworks .venv-gpu .venv-wheel build dist demo

.venv/runtime: requirements.lock
	$(PYTHON) -m venv .venv
	$(PIP) -r requirements.lock
	touch $@

.venv/package: .venv/runtime pyproject.toml $(wildcard setup.py) $(NATIVE)
	$(PIP) --no-deps --no-build-isolation --editable .
	touch $@

.venv/dev: .venv/package requirements-dev.lock
	$(PIP) -r requirements-dev.lock
	touch $@

.venv/peers: .venv/dev requirements-peers.lock
	$(PIP) --no-deps -r requirements-peers.lock || echo "peers not installed: their tests will skip"
	touch $@

.venv-%/ready: requirements-%.lock
	$(PYTHON) -m venv .venv-$*
	.venv-$*/bin/pip --disable-pip-version-check --quiet install -r $<
	touch $@
