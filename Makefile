# SPDX-License-Identifier: MIT
# The commands of the project. Each sets up what it needs first; a second call starts at once.
#
#   make run       train a network on torch.device('hologram') beside cpu, then a short tour
#   make test      every test but those marked heavy
#   make test-heavy   the tests marked heavy, file by file; call it again to go on after a break
#   make test-all  every test, and PyTorch's own (`make upstream`)
#   make soak      an hour of training, twice, then failures and interrupts (SOAK_SECONDS)
#   make test-matrix  what a setting can change, with each GEMM and instruction set, on one core, without worker,
#                  without JIT, with poisoned memory
#   make test-versions  make test with each PyTorch and Python that the project is for, each in a checkout of its own
#   make conformance  PyTorch's own databases on cpu and on the device: samples that are alike, and what differs
#   make array-api SUITE=dir  the array API's conformance suite, from a checkout, and a table
#   make upstream  PyTorch's own test files on the device, and what fails there alone (UPSTREAM='test_torch.py')
#   make bench     the measurements behind the figures in the README, in ten minutes
#   make bench-all every measurement, and bench/RESULTS.md from them
#   make accuracy  the error of every elementwise op, in ULP, on every instruction set
#   make check     formatting, types, and lint of what changed
#   make check-all  the same with lint of everything
#   make wheels    both wheels in outputs/wheels, for machines without a compiler
#   make docs      build the site in outputs/site; the documents' links and commands have to hold
#   make clean     delete what was built (.venv stays; `make distclean` deletes that too)
#
# PYTHON=python3.12 picks the interpreter, TORCH='torch==2.11.*' the PyTorch.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.NOTPARALLEL:
export PYTHONUNBUFFERED = 1
# Also beside a GPU, where `import torch` alone would leave the device out.
export HOLOGRAM_AUTOLOAD ?= 1

PY := .venv/bin/python

.PHONY: help soak setup setup-tests setup-bench setup-all setup-check setup-docs run test test-heavy test-matrix test-versions test-all conformance upstream array-api bench bench-all accuracy wheels check check-all docs clean distclean

help:
	@sed -n 's/^#   //p' Makefile

setup:
	@python=$$(tools/find-python) && "$$python" tools/setup.py

setup-tests:
	@python=$$(tools/find-python) && "$$python" tools/setup.py --tests

setup-bench:
	@python=$$(tools/find-python) && "$$python" tools/setup.py --bench

setup-all:
	@python=$$(tools/find-python) && "$$python" tools/setup.py --tests --all

setup-check:
	@python=$$(tools/find-python) && "$$python" tools/setup.py --tests --check

run: setup
	@$(PY) examples/train_digits.py --model mlp --out outputs/digits
	@$(PY) examples/train_digits.py --model cnn --out outputs/digits
	@$(PY) examples/tour.py

test: setup-tests
	@$(PY) tools/test.py

test-heavy: setup-all
	@$(PY) tools/test.py --heavy

test-matrix: setup-tests
	@$(PY) tools/test_matrix.py $(MATRIX)

test-versions:
	@python=$$(tools/find-python) && "$$python" tools/test_versions.py $(VERSIONS)

test-all: setup-all
	@$(PY) tools/test.py --all; code=$$?; $(PY) tools/upstream.py || code=1; exit $$code

SOAK_SECONDS ?= 3600
soak: setup-tests
	@HOLOGRAM_SOAK_SECONDS=$(SOAK_SECONDS) $(PY) -m pytest -rA tests/torch/soak

conformance: setup-tests
	@$(PY) tests/torch/conformance/__main__.py --out outputs/conformance $(CONFORMANCE)

upstream: setup-tests
	@$(PY) tools/upstream.py $(UPSTREAM)

array-api: setup-tests
	@$(PY) tools/array_api.py $(SUITE) $(ARRAY_API)

bench: setup-bench
	@$(PY) -m bench $(BENCH)

bench-all: setup-bench
	@$(PY) -m bench --all --publish $(BENCH)

accuracy: setup
	@.venv/bin/cmake -S . -B build/accuracy -DHOLOGRAM_BUILD_TOOLS=ON -DHOLOGRAM_INSTALL=OFF > /dev/null
	@.venv/bin/cmake --build build/accuracy --target hologram_accuracy --parallel > build/accuracy/log
	@build/accuracy/tools/accuracy/hologram_accuracy

wheels:
	@python=$$(tools/find-python) && "$$python" tools/setup.py --wheels

check: setup-check
	@$(PY) tools/check.py

check-all: setup-check
	@$(PY) tools/check.py --all

setup-docs:
	@python=$$(tools/find-python) && "$$python" tools/setup.py --docs

docs: setup-docs
	@$(PY) tools/docs.py --site outputs/site

clean:
	rm -rf build outputs .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@rm -rf .venv/.stamps/hologram .venv/.stamps/hologram-torch .venv/.stamps/cpp-tests

distclean: clean
	rm -rf .venv
