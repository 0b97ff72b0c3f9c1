# Each target does its own set-up: Python 3.11 or newer and make are all that a fresh machine needs.
#   make test ARGS="tests/test_rng.py -x"     make bench QUICK=     make demo OUT=/tmp/demo     make PYTHON=/opt/python3.12 test

VENV ?= .venv
OUT ?= demo-out
QUICK ?= --quick
ARGS ?=
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
ROOMS := curation datasets training eval pipelines
CODE := front_door $(ROOMS) tests benchmarks install_torch.py docs/site

# TORCH=default takes the build that pip takes by itself, and TORCH=cpu that for processors also where there is a GPU.
TORCH ?=

# In the environment, so that build isolation sees it too (newer pips look there for the second name). Relative to this folder,
# since pip splits the value at spaces.
PIP_ENV := PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1
PIP := $(PIP_ENV) $(BIN)/python -m pip

.DEFAULT_GOAL := help
.PHONY: help install demo container-check test lint format bench docs clean distclean

help:
	@echo 'make demo       build a small benchmark from real photos and write an HTML report (OUT=$(OUT))'
	@echo 'make test       run the tests (ARGS="..." goes to pytest)'
	@echo 'make lint       ruff check, ruff format --check, pyright'
	@echo 'make format     let ruff mend and format the code'
	@echo 'make docs       build the site into site/'
	@echo 'make bench      run the benchmarks in their short form (QUICK= for the full sizes)'
	@echo 'make install    only make $(VENV)'
	@echo 'make clean      remove what the other targets made, save $(VENV); make distclean removes that too'
	@echo 'make container-check   build the container of the Dockerfile and run the demo in it (ROOT=FOLDER: without docker)'

install: $(STAMP)

# The stamp is written last, so that a broken installation is resumed.
$(STAMP): pyproject.toml constraints.txt
	@python=; for name in $(or $(PYTHON),python3.11 python3 python3.12 python3.13); do \
		if $$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then python=$$name; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
		echo 'benchwright needs Python 3.11 or newer: name it, as in make PYTHON=/path/to/python3.11' >&2; \
		exit 1; \
	fi; \
	if [ ! -x $(BIN)/python ]; then $$python -m venv $(VENV); fi
	@echo 'Installing benchwright and what it needs into $(VENV): one to five minutes'
	@$(PIP_ENV) TORCH='$(TORCH)' $(BIN)/python install_torch.py
	@$(PIP) install -qq --no-compile --editable '.[demo,dev]'
	@touch $@

demo: $(STAMP)
	$(BIN)/benchwright demo --out '$(OUT)'

# As root and with debootstrap, ROOT=/tmp/container carries out the Dockerfile's steps in that folder.
container-check:
	python3 benchmarks/check_container.py $(if $(ROOT),--root '$(ROOT)') $(ARGS)

# Bytecode is written also where the environment forbids it: each of hundreds of processes would compile the project anew. The
# tests' files lie in memory where there is plenty: a disk is waited for at each of many thousand fsyncs. Tests of one file share
# runs that were made once, and so share a worker; tests/conftest.py says which files come first. There are two workers for each
# processor, where memory allows 4 GB for each, since tests wait for browsers, clusters and disks; two threads of torch in each
# would wait for each other.
test: $(STAMP)
	@room=$$(df -kP /dev/shm 2>/dev/null | awk 'END {print int($$4)}'); \
	free=$$(awk '/^MemAvailable/ {print $$2}' /proc/meminfo 2>/dev/null); \
	if [ "$${room:-0}" -gt 8000000 ] && [ "$${free:-0}" -gt 12000000 ]; then export PYTEST_DEBUG_TEMPROOT=/dev/shm; fi; \
	workers=$$($(BIN)/python -c 'import os, sys; print(max(2, min(2 * (os.cpu_count() or 1), int(sys.argv[1]) // 4_000_000)))' $${free:-12000000}); \
	OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1} PYTHONDONTWRITEBYTECODE= \
		$(BIN)/pytest -q -n $$workers --dist loadfile --no-loadscope-reorder $(ARGS)

# pyright sees neither that the folder curation/ is imported as benchwright.curation nor what pyarrow.compute makes on import: tell it.
lint: $(STAMP)
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	@mkdir -p .types/benchwright .types/pyarrow-stubs
	@for room in $(ROOMS); do ln -sfn ../../$$room .types/benchwright/$$room; done
	@ln -sfn ../../front_door/__init__.py .types/benchwright/__init__.py
	@printf 'from typing import Any\n\ndef __getattr__(name: str) -> Any: ...\n' >.types/pyarrow-stubs/compute.pyi
	@echo partial >.types/pyarrow-stubs/py.typed
	PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(BIN)/pyright --pythonpath $(BIN)/python

format: $(STAMP)
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

bench: $(STAMP)
	@set -e; for script in benchmarks/bench_*.py; do echo "== $$script $(QUICK)"; $(BIN)/python $$script $(QUICK); done

# Every warning is an error. Nothing is fetched. The variable stops an advertisement of the theme for another tool.
docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -P -m mkdocs build --strict --quiet
	@echo 'The site: site/index.html'

clean:
	rm -rf '$(OUT)' bench-out site .types .pytest_cache .ruff_cache .hypothesis build dist
	find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean
	rm -rf $(VENV) *.egg-info
