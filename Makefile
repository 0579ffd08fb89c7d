# Every target works from a clean clone: the first one to run creates .venv.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
# Packages of others, for test-extras and bench; on top of .venv, which stays as it is.
EXTRAS := .venv-extras
EXTRAS_READY := $(EXTRAS)/.ready
SITE := import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))
# Figures in Hindi need a Devanagari font, and the page's tests a browser. Without root on Debian, install them by hand;
# otherwise those figures show boxes and those tests are skipped.
FONT := fc-list :lang=hi | grep -q . || apt-get install -yqq fonts-lohit-deva
BROWSER := command -v chromium || apt-get install -yqq --no-install-recommends chromium
DEBIAN := test "$$(id -u)" != 0 || ! command -v apt-get || { ( $(FONT) ); ( $(BROWSER) ); }
PAGE := src/seq2see/server/explore/page/index.html
# Every test computes in one thread, so two files run at a time, in the order of tests/conftest.py.
PARALLEL := -n 2 --dist loadfile --no-loadscope-reorder
# The core, for its coverage: everything but the rooms that it never imports.
ROOMS := src/seq2see/check/*,src/seq2see/formats/*,src/seq2see/views/*,src/seq2see/cli/*,src/seq2see/course/*,src/seq2see/exchange/*,src/seq2see/server/*
CHECKS := test-python test-avx2 lint types test-page

# make mutants: small changes to the core that the tests must notice, drawn with a seed.
SEED ?= 1
COUNT ?= 300

.PHONY: setup page demo test sanitize test-extras coverage mutants faults fuzz lint format types parity bench soak results clean $(CHECKS)

setup: $(READY) page

page: $(PAGE)

# Built from web/; its types and the code excerpts it shows are generated from the Python package. Everything else works
# without Node, and `seq2see explore` says that the page is missing.
$(PAGE): $(READY) $(wildcard src/seq2see/model/*.py src/seq2see/server/explore/*.py) \
  $(shell find web \( -name node_modules -o -name .tests -o -name generated \) -prune -o -type f -print)
	@if command -v npm >/dev/null; then npm --prefix web ci --no-audit --no-fund --loglevel=error && npm --prefix web run -s build; \
	else echo "npm not found: the page of seq2see explore is not built"; fi

$(READY): pyproject.toml constraints.txt build_hook.py
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install -q -c constraints.txt -e '.[dev]'
	$(DEBIAN) || true
	touch $@

demo: setup
	$(BIN)/python recipes/demo.py

# Side by side: tests often wait, for a page, a server or another process.
test: setup
	@$(MAKE) --no-print-directory --jobs=2 $(CHECKS)

test-python: setup
	$(BIN)/pytest $(PARALLEL) --durations=30

# Where an older processor would show: the tests marked so. tests/machines.sh tries more settings.
test-avx2: setup
	ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2 $(BIN)/pytest -m avx2 $$(grep -rl 'mark\.avx2' tests --include='test_*.py')

test-page: setup
	! test -d web/node_modules || npm --prefix web -s test

# The engine's C under the sanitizers, with random models, batches and mistakes; needs gcc or clang.
sanitize:
	tests/engine/sanitize.sh

coverage: setup
	$(BIN)/pytest $(PARALLEL) --cov=seq2see --cov-report=
	$(BIN)/coverage report --omit='$(ROOMS)' --fail-under=95

mutants: setup
	$(BIN)/python -m tests.mutants --seed $(SEED) --count $(COUNT)

# Odd texts, damaged models, command lines and requests: CASES of each kind, 20 times as many texts. make test tries a few.
CASES ?= 5000
KINDS = $$($(BIN)/python -c 'from tests.$(1) import $(2); print(*$(2))')
fuzz: setup
	for parser in $(call KINDS,fuzz_parsers,PARSERS); do \
	  $(BIN)/python -m tests.fuzz_parsers $$parser --count $$((20 * $(CASES))) || exit; done
	for kind in $(call KINDS,fuzz_models,KINDS); do $(BIN)/python -m tests.fuzz_models $$kind --count $(CASES) || exit; done
	$(BIN)/python -m tests.fuzz --cases $(CASES)
	$(BIN)/python -m tests.service_fuzz --requests $(CASES)

# Every write, fsync, rename ... of every writer fails in turn.
faults: setup
	$(BIN)/python -m tests.faults

# Tests with packages of others: Ray, the runtimes that exports are for, and the clients of the service.
test-extras: setup $(EXTRAS_READY)
	$(EXTRAS)/bin/python -m pytest -m extras -rs

# llama.cpp is compiled, in 5 to 20 minutes on two cores.
$(EXTRAS_READY): $(READY)
	$(BIN)/python -m venv $(EXTRAS)
	$(BIN)/python -c '$(SITE)' > $$($(EXTRAS)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/base.pth
	$(EXTRAS)/bin/pip install -q -c constraints.txt -e '.[extras]'
	$(EXTRAS)/bin/python -c "import llama_cpp" 2>/dev/null || $(EXTRAS)/bin/pip install -q -c constraints.txt llama-cpp-python
	touch $@

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo
	! test -d web/node_modules || npm --prefix web -s run lint

types: setup
	$(BIN)/mypy
	! test -d web/node_modules || npm --prefix web run -s types

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	! test -d web/node_modules || npm --prefix web -s run format

# The largest difference between our numbers and those of Hugging Face and torch.
parity: setup
	$(BIN)/python -m tests.parity

# Slow; run it on an idle machine. DATA is a directory with multi30k/, en-hi/, lm/ and words/.
bench: setup $(EXTRAS_READY)
	$(EXTRAS)/bin/pip install -q -c constraints.txt -e '.[bench]'
	$(EXTRAS)/bin/python benchmarks/model_cpu.py $(if $(DATA),--data $(DATA))
	$(EXTRAS)/bin/python benchmarks/engine.py
	$(EXTRAS)/bin/python benchmarks/decode_cpu.py
	$(EXTRAS)/bin/python benchmarks/exchange.py
	$(EXTRAS)/bin/python benchmarks/corpus.py $(if $(DATA),--data $(DATA))
	$(EXTRAS)/bin/python benchmarks/explore_load.py
	$(EXTRAS)/bin/python benchmarks/serve_load.py $(if $(DATA),--sentences $(DATA)/multi30k/test.en)
	$(if $(DATA),$(EXTRAS)/bin/python benchmarks/tokens_per_word.py --data $(DATA))
	$(if $(DATA),$(EXTRAS)/bin/python benchmarks/train_cpu.py --data $(DATA))
	$(if $(DATA),$(EXTRAS)/bin/python benchmarks/vectors.py --data $(DATA))

# Ten minutes of the service under mixed requests, killed workers, changing keys and slow clients.
soak: setup
	$(BIN)/python benchmarks/serve_soak.py

# docs/results.md from the scores that the recipes recorded.
results: setup
	$(BIN)/python recipes/results.py

clean:
	rm -rf .venv $(EXTRAS) .mypy_cache .pytest_cache .ruff_cache dist web/node_modules web/.tests web/src/generated $(dir $(PAGE))
