# make demo: set up and run the quickstart. make test: set up for development, then lint, types and tests. make install: set up.
# make dist: build a wheel and an sdist in dist/. make docs-site: the documents as a site, in site/.
# make test-cluster: set up SkyRL's server beside it, and train on it. make test-agents: train agents of well-known libraries.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
SKYRL ?= .skyrl
AGENTS ?= .agents
# Only what is imported gets compiled, at its first import, and is kept for the next one. The pip that comes with Python 3.11
# takes 1.4 times as long as the one in constraints.txt.
PIP := $(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt
# Strict: a link that leads nowhere is an error. The variable silences an advertisement.
SITE := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
export PYTHONDONTWRITEBYTECODE :=

.PHONY: install develop demo test test-cluster test-agents lint types pages docs docs-site dist
install: $(VENV)/.installed
develop: $(VENV)/.develop

$(VENV)/.installed: pyproject.toml constraints.txt
	@echo "set-up, 1 of 3: a virtual environment in $(VENV) (about 5 s)"
	@$(PYTHON) -m venv $(VENV)
	@echo "set-up, 2 of 3: a newer pip (about 5 s)"
	@$(PIP) --upgrade pip
	@echo "set-up, 3 of 3: fastslow with torch, transformers and TRL (1 to 4 min the first time, mostly downloads)"
	@$(PIP) --editable .
	@touch $@

$(VENV)/.develop: pyproject.toml constraints.txt
	@echo "set-up, 1 of 3: a virtual environment in $(VENV) (about 5 s)"
	@$(PYTHON) -m venv $(VENV)
	@echo "set-up, 2 of 3: a newer pip (about 5 s)"
	@$(PIP) --upgrade pip
	@echo "set-up, 3 of 3: fastslow with everything that its tests need (3 to 6 min the first time, mostly downloads)"
	@$(PIP) --editable ".[dev]"
	@touch $(VENV)/.installed $@

demo: install
	@echo "quickstart: three methods on one task (about 4 min on 2 cores)"
	@rm -rf runs/quickstart
	@$(BIN)/fastslow quickstart

test: develop
	$(MAKE) --jobs 2 lint types pages
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder

test-cluster: develop
	@python=$$(tests/cluster/set_up.sh $(SKYRL)) || { echo "the tests against SkyRL's server are skipped"; exit 0; }; \
	FASTSLOW_SKYRL_PYTHON=$$python OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/cluster -s

$(AGENTS)/.installed: tests/agents/requirements.txt constraints.txt
	@echo "set-up: the agents' libraries in an environment of their own, $(AGENTS)"
	@$(PYTHON) -m venv $(AGENTS)
	@$(AGENTS)/bin/python -m pip install --quiet --no-compile --upgrade pip uv
	@VIRTUAL_ENV=$(abspath $(AGENTS)) $(AGENTS)/bin/uv pip install --quiet --constraint constraints.txt --requirement $<
	@touch $@

test-agents: develop $(AGENTS)/.installed
	FASTSLOW_AGENTS_PYTHON=$(abspath $(AGENTS))/bin/python OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/agents

lint: develop
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: develop
	$(BIN)/mypy

pages: develop
	$(BIN)/python docs/reference.py --check
	$(BIN)/python docs/families.py --check
	$(SITE) --site-dir $(VENV)/site

docs: develop
	$(BIN)/python docs/reference.py
	$(BIN)/python docs/families.py

docs-site: develop
	$(SITE)
	@echo "open site/index.html"

dist: develop
	rm -rf build dist
	$(BIN)/python -m build --no-isolation
	rm -rf build
