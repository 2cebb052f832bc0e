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
	$(BIN)/fastslow train examples/quickstart/recipe.yaml slow.steps=36 output.folder=runs/quickstart
	$(BIN)/fastslow contexts runs/quickstart
	@echo
	@echo "What to try next:"
	@echo "  $(BIN)/fastslow train examples/quickstart/recipe.yaml method=rl     # the slow loop alone"
	@echo "  $(BIN)/fastslow train examples/quickstart/recipe.yaml method=gepa   # the fast loop alone"
	@echo "  $(BIN)/fastslow train recipes/rulebook.yaml                         # nano, a 6.5M-weight model, on a hidden rulebook"
	@echo "  $(BIN)/fastslow eval runs/quickstart                                # measure the last checkpoint again"
	@echo "  $(BIN)/fastslow export runs/quickstart my-model                     # a folder that transformers and vLLM serve"

test: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python docs/reference.py --check
	$(BIN)/python -m pytest

docs: install
	$(BIN)/python docs/reference.py
