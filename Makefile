# Two commands do all the set-up: `make up` trains the embedded default, `make test` runs the tests.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
CONFIG ?=
ARGS ?=
# torch's CPU build is no ordinary release of the package index: pip must find it in a configured place, or in
# PyTorch's own index of CPU wheels, which is asked second.
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu

.PHONY: up test unit lint bench clean

up: $(READY)
	$(BIN)/stream-rl up $(CONFIG) $(ARGS)

test: unit
	$(BIN)/python -m pytest tests/contract tests/process $(ARGS)

unit: $(READY)
	$(BIN)/python -m pytest tests/unit -n 3 $(ARGS)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(READY)
	$(BIN)/python -m benchmarks.embedded_learning $(ARGS)

$(READY): requirements/cpu.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "stream_rl needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --no-deps -r requirements/cpu.lock \
	  || $(BIN)/pip install -q --no-deps --extra-index-url $(TORCH_INDEX) -r requirements/cpu.lock
	$(BIN)/pip install -q --no-deps --no-build-isolation -e .
	touch $(READY)

clean:
	rm -rf $(VENV) build *.egg-info
