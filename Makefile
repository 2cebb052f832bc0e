# make demo: set up and run the quickstart. make test: set up for development, then lint, types and tests. make install: set up.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --constraint constraints.txt --editable

.PHONY: install develop demo test docs
install: $(VENV)/.installed
develop: $(VENV)/.develop

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) .
	touch $@

$(VENV)/.develop: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) ".[dev]"
	touch $(VENV)/.installed $@

demo: install
	rm -rf runs/quickstart
	$(BIN)/fastslow quickstart

test: develop
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python docs/reference.py --check
	$(BIN)/python docs/families.py --check
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist loadfile

docs: develop
	$(BIN)/python docs/reference.py
	$(BIN)/python docs/families.py
