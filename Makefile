# make demo: set up and run the quickstart. make test: set up for development, then lint, types and tests. make install: set up.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable
# On all cores, where pip compiles on one. Some packages have files for another Python: they do not matter.
COMPILE := $(BIN)/python -W ignore -m compileall -qq -j 0 $(VENV)/lib || true

.PHONY: install develop demo test docs
install: $(VENV)/.installed
develop: $(VENV)/.develop

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) .
	$(COMPILE)
	touch $@

$(VENV)/.develop: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) ".[dev]"
	$(COMPILE)
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
