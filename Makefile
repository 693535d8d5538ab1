# Every target makes the environment it needs in .venv, with the versions of constraints.txt; a second call is quick.
#   make demo     profile a model, solve, run the plan in two processes, show predicted against achieved
#   make test     all tests                     make soak   property tests and fuzzing, with many more examples
#   make lint     style and import directions   make types  mypy --strict
#   make docs     the documentation             make bench  measure (SUITE=speed: at full size)
#   make wheel-check  what the archives hold    make clean  remove everything that was made, .venv too
# PYTHON=python3.11 chooses the interpreter, ARGS="-k chain" adds to the command of test, soak and bench.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PYTHON ?= python3
JOBS ?= 2
ARGS ?=
SUITE ?= smoke

VENV := .venv
BIN := $(VENV)/bin
STAMPS := $(VENV)/stamps
CODE := balance problems executor bench tests docs

.PHONY: help demo test soak lint format types docs bench wheel-check clean

help:
	@sed -n '2,/^$$/s/^# \{0,3\}//p' Makefile

$(STAMPS)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "dnn-balance needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1)." \
	       "Name another one: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@mkdir -p $(STAMPS) && touch $@

# torch alone and first, by its exact version: with it in place, no range of another package can choose a different build.
$(STAMPS)/torch: $(STAMPS)/python constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $$(grep '^torch==' constraints.txt)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt hatchling
	@touch $@

$(STAMPS)/demo: $(STAMPS)/torch pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --constraint constraints.txt \
	  --editable '.[executor,plot]'
	@touch $@

$(STAMPS)/develop: $(STAMPS)/torch pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --constraint constraints.txt \
	  --editable '.[executor,plot,bench,test,docs]'
	@touch $@ $(STAMPS)/demo

demo: $(STAMPS)/demo
	$(BIN)/python -m balance.executor.demo

test: $(STAMPS)/develop
	$(BIN)/python -m pytest -n $(JOBS) $(ARGS)

# The log is evidence: it names the profile, the versions and every test that ran.
soak: $(STAMPS)/develop
	@mkdir -p build
	BALANCE_HYPOTHESIS_PROFILE=soak $(BIN)/python -m pytest -n $(JOBS) -m 'property or fuzz' -v --timeout=0 $(ARGS) \
	  2>&1 | tee build/soak.log

lint: $(STAMPS)/develop
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/lint-imports --no-cache --no-logo

format: $(STAMPS)/develop
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

types: $(STAMPS)/develop
	$(BIN)/mypy -p balance

docs: $(STAMPS)/develop
	$(BIN)/python -m sphinx -W --keep-going -q -b html -d build/doctrees docs build/docs
	$(BIN)/python -m sphinx -W --keep-going -q -b doctest -d build/doctrees docs build/docs-doctest
	@echo "documentation: build/docs/index.html"

bench: $(STAMPS)/develop
	$(BIN)/dnn-balance bench --suite $(SUITE) $(ARGS)

wheel-check: $(STAMPS)/develop
	$(BIN)/python -m pytest tests/house/test_wheel.py

clean:
	rm -rf $(VENV) build dist .benchmarks .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	rm -rf docs/problems docs/solvers.md docs/formats.md docs/command-line.md
	find balance problems executor bench tests docs -name __pycache__ -type d -prune -exec rm -rf {} +
