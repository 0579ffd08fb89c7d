# Every target works from a clean clone: the first one to run makes .venv, once.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: setup demo test lint format types parity bench clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install -q -c constraints.txt -e '.[dev]'
	touch $@

demo: setup
	$(BIN)/python -m seq2see.demo

test: lint types
	$(BIN)/pytest

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The largest difference between our numbers and those of Hugging Face and torch.
parity: setup
	$(BIN)/python -m tests.parity

# Slow; DATA is a folder with a multi30k/ in it, or empty for made-up sentence lengths.
bench: setup
	$(BIN)/python benchmarks/model_cpu.py $(if $(DATA),--data $(DATA))

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache dist
