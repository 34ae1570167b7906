# Every target sets up .venv by itself, and again whenever pyproject.toml or constraints.txt change.

VENV := .venv
RUN := $(VENV)/bin/python -m
READY := $(VENV)/.ready
BROWSER := $(VENV)/.browser
NPM := web/node_modules/.package-lock.json
JOBS ?= auto
# One process per core, each with one thread.
PYTEST = OMP_NUM_THREADS=1 $(RUN) pytest -n $(JOBS) --maxprocesses 8 --dist worksteal

# The first Python that is new enough, python3 before others. Or: make test PYTHON=/path/to/python
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11 python3.10; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null \
	&& echo $$python && break; done)

.DEFAULT_GOAL := help
.PHONY: help demo demo-zh serve test coverage lint bench docs outputs clean

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## */  make \1\t/p' $(firstword $(MAKEFILE_LIST)) | expand -t 16

demo: $(READY)  ## see how the layers of the included model separate the senses of words
	$(VENV)/bin/python examples/demo.py $(ARGS)

demo-zh: $(READY)  ## the same with the included Chinese model and Chinese words
	$(VENV)/bin/python examples/demo.py --chinese $(ARGS)

serve: $(READY)  ## open the explorer, and answer over HTTP at http://127.0.0.1:8090; ARGS='--task FOLDER' etc.
	$(RUN) elmokit serve --open $(ARGS)

test: $(READY) $(BROWSER) $(NPM)  ## run the tests and the examples in docstrings; ARGS='-k cli' goes to pytest
	$(PYTEST) $(ARGS)

# Tracing doubles the time of the tests, so that it is a target of its own and skips the slow ones.
coverage: $(READY) $(BROWSER) $(NPM)  ## run the quick tests and list the lines that none of them reaches
	$(PYTEST) -m 'not slow and not fuzz' --cov --cov-report=term $(ARGS)

lint: $(READY)  ## check style (ruff), types (mypy), the order of imports (import-linter) and spelling (codespell)
	$(RUN) ruff check .
	$(RUN) ruff format --check .
	$(RUN) mypy
	$(VENV)/bin/lint-imports --no-logo
	$(RUN) codespell_lib

bench: $(READY)  ## measure speed; ARGS are handed to benchmarks/run.py
	$(VENV)/bin/python benchmarks/run.py $(ARGS)

docs: $(READY)  ## build the documentation into site/, if tutorials print what they show; needs npm
	$(PYTEST) -q tests/test_docs.py -k 'does_what_is_shown and tutorials'
	$(RUN) mkdocs build --strict --site-dir site
	$(VENV)/bin/python web/build_explorer.py site/explorer

outputs: $(READY) $(BROWSER)  ## update what README and docs print and draw, after a change of the model
	$(VENV)/bin/python benchmarks/screenshots.py
	$(VENV)/bin/python benchmarks/polysemy.py
	$(VENV)/bin/python benchmarks/report.py
	$(PYTEST) --rewrite tests/test_docs.py tests/test_readme.py -k does_what_is_shown $(ARGS)

clean:  ## delete .venv and everything that was built
	rm -rf $(VENV) web/node_modules site build dist .coverage* .hypothesis .import_linter_cache
	rm -rf .mypy_cache .pytest_cache .ruff_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# Touched last: an install that fails or is stopped is done again the next time. Python compiles
# the modules that it imports; compiling all of them beforehand would take a minute.
$(READY): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "elmokit needs Python 3.10 or newer, and none was found:" \
		"install one, or name it with make PYTHON=/path/to/python." >&2; exit 1; }
	@echo "Setting up $(VENV) with $(PYTHON): a few minutes the first time."
	test -x $(VENV)/bin/python || $(PYTHON) -m venv --clear $(VENV)
	$(RUN) pip install -qq --no-compile -c constraints.txt -e '.[dev]'
	@touch $@

# The tests of the explorer run in Chromium. Where there is none, and we may, it is installed with a
# font for Chinese; elsewhere these tests are skipped with a reason, but in CI they fail.
$(BROWSER): | $(READY)
	@find_browser() { for name in chromium chromium-browser google-chrome; do \
		command -v $$name >/dev/null && return; done; test -n "$$ELMOKIT_CHROMIUM"; }; \
	if ! find_browser && command -v apt-get >/dev/null; then \
		if test "$$(id -u)" = 0; then AS=; else AS='sudo -n'; fi; \
		$$AS true 2>/dev/null && $$AS apt-get -qq update \
		&& $$AS env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends \
			chromium fonts-noto-cjk >/dev/null; \
	fi; \
	if find_browser; then touch $@; \
	else echo "There is no Chromium: the tests of the explorer are skipped, except in CI."; fi

# onnxruntime-web, for the explorer without a server. Without npm or the network its tests are
# skipped with a reason, but in CI they fail.
$(NPM): web/package-lock.json
	@if command -v npm >/dev/null \
		&& npm ci --prefix web --ignore-scripts --no-audit --no-fund --fetch-retries 1 >/dev/null; \
	then touch $@; \
	else echo "There is no onnxruntime-web: its tests are skipped, except in CI."; fi
