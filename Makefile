# Needs python3 (3.11 or newer) with pip and make; nothing else, no root, and no venv or git package.
# `make check` is the fast gate while working, `make test` is everything.

# Not the one in .venv, which has no pip, though it may stand first on PATH.
PYTHON ?= $(shell PATH=`echo "$$PATH" | sed 's#$(CURDIR)/\.venv/bin:*##g'` command -v python3)
# One more than a small machine has processors: many tests wait for a process or a clock.
WORKERS ?= 3
BIN := .venv/bin
RUNTIME := .venv/.runtime
STAMP := .venv/.complete
INPUTS := requirements-dev.txt pyproject.toml clients/python/pyproject.toml

# What is compiled is kept: else each of the workers compiles all tests, on every run.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup check test lint types layers compiled unit gen fix pins demo bench soak clean

help:
	@echo "make setup    install everything into .venv (done once, and again when the pins change)"
	@echo "make check    lint, types, layers, generated files, tests of core and protocol"
	@echo "make test     everything: check, the whole test suite, coverage"
	@echo "make lint | types | layers | unit    one part of make check"
	@echo "make gen      write schemas/, protocol/openrpc.json and the tables in protocol/*.md"
	@echo "make fix      format, and mend what the linter can mend"
	@echo "make pins     install the newest versions of requirements-dev.in and write requirements-dev.txt"
	@echo "make demo     a project is mended, the server killed, the turn goes on: no key, no network"
	@echo "make bench    the figures of this machine"
	@echo "make soak     kills, power cuts, full disks, bad frames and more, for SOAK_MINUTES (60); again: goes on; SOAK_KINDS=kills,power"
	@echo "make clean    remove what was built, also .venv"

setup: $(STAMP)

# Debian keeps ensurepip out of python3 and forbids pip to touch the system (PEP 668), so the environment is made
# without pip and filled by the pip outside it (23.0 or newer: `--python`).
PIP := $(PYTHON) -m pip --python $(BIN)/python install --quiet --disable-pip-version-check

# What Hames itself needs, at the pinned versions: enough to run it.
$(RUNTIME): $(INPUTS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "$(PYTHON) is older than 3.11; run: make setup PYTHON=python3.11" >&2; exit 1; }
	@$(PYTHON) -m pip --version >/dev/null 2>&1 \
		|| { echo "$(PYTHON) has no pip; on Debian and Ubuntu: apt-get install python3-pip" >&2; exit 1; }
	$(PYTHON) -m venv --without-pip .venv
	$(PIP) -c requirements-dev.txt -e . -e clients/python
	@$(BIN)/python -m compileall -q src clients/python/src
	@touch $@

# And what its tests and checks need.
$(STAMP): $(RUNTIME)
	$(PIP) -r requirements-dev.txt
	@touch $@

check: setup
	@$(MAKE) --no-print-directory -j2 --keep-going --output-sync=target lint types layers unit

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

layers: setup
	$(BIN)/lint-imports --no-cache

unit: setup
	$(BIN)/python -m pytest -q -m "not slow" tests/core tests/protocol

# Of a new clone the tests are compiled once, beside the checks of types, and not by all workers at the same time.
compiled: setup
	@ls tests/*/__pycache__/*-pytest-*.pyc >/dev/null 2>&1 || $(BIN)/python -m pytest -q --collect-only >/dev/null || true

# Coverage: all of core and protocol, branches too; the rest may not fall below coverage-floor.txt.
PURE := */hames/core/*,*/hames/protocol/*
test: setup
	@$(MAKE) --no-print-directory -j2 --keep-going --output-sync=target types compiled lint layers
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -q -n $(WORKERS) --dist worksteal
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --skip-covered --include='$(PURE)' --fail-under=100
	$(BIN)/coverage report --skip-covered --omit='$(PURE)' --fail-under=$$(cat coverage-floor.txt)

gen: setup
	$(BIN)/python -m hames.generate .

fix: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

pins: setup
	$(PYTHON) -m pip --python $(BIN)/python install --upgrade --upgrade-strategy eager \
		-r requirements-dev.in -e . -e clients/python
	$(PYTHON) -m pip --python $(BIN)/python freeze --all --exclude-editable > requirements-dev.txt

demo: $(RUNTIME)
	$(BIN)/python clients/python/examples/demo.py

bench: setup
	$(BIN)/hames bench

soak: setup
	@PYTHONPATH=src:tests SOAK_WORKERS=$(WORKERS) $(BIN)/python -m soak

clean:
	rm -rf .venv .coverage .coverage.* .hypothesis .mypy_cache .ruff_cache .pytest_cache .import_linter_cache build dist
	find src tests clients -name __pycache__ -prune -exec rm -rf {} +
	find src clients -name '*.egg-info' -prune -exec rm -rf {} +
