# make demo: set up and run the quickstart. make test: set up, then lint, types and tests. make install: only set up.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: install demo test docs
install: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@

demo: install
	rm -rf runs/quickstart
	$(BIN)/fastslow quickstart

test: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python docs/reference.py --check
	$(BIN)/python -m pytest

docs: install
	$(BIN)/python docs/reference.py
