# `make demo` and `make test` each work from a clean clone; set-up is repeated only when what it depends on changed.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
PIP := $(BIN)/pip --disable-pip-version-check --quiet install
NATIVE := $(wildcard src/filtercov/csrc/*)
PYTHON_CODE := src tests benchmarks examples tools conftest.py setup.py

.PHONY: demo test test-faults lint clean

demo: .venv/package
	$(BIN)/filtercov demo --out demo

test: lint .venv/peers
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q --numprocesses 2 --dist loadscope

test-faults: .venv/peers
	$(BIN)/python -m pytest -q -m faults

lint: .venv/dev
	$(BIN)/ruff format --check $(PYTHON_CODE)
	$(BIN)/ruff check $(PYTHON_CODE)
	$(BIN)/mypy

clean:
	rm -rf .venv build demo

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

.venv/peers: .venv/dev requirements-peers.lock requirements-frameworks.lock
	$(PIP) --no-deps -r requirements-peers.lock || echo "peers not installed: their tests will skip"
	$(PIP) --no-deps -r requirements-frameworks.lock || echo "JAX and Keras not installed: their tests will skip"
	touch $@
