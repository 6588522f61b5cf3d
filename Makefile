# `make demo` and `make test` each set up what they need and run alone, from nothing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Reference programs for bench and clients, if they lie beside this checkout: load generator, bare floors, Apache Kafka.
REFERENCES ?= $(abspath $(CURDIR)/..)/shared
PEER ?= $(wildcard $(REFERENCES)/peer/kafka/kafka-peer)
CLIENTS ?=
SEEDS ?= 0-19
HOURS ?= 1

.PHONY: setup demo test test-all lint format bench startup clients bad-input mutants crash oracle simulation wheel-test clean

$(VENV)/.done: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	$(BIN)/python -m compileall -q core plugins
	touch $@

setup: $(VENV)/.done

demo: setup  ## a market feed through a broker of this build, with a real client
	$(BIN)/blumfeld demo

test: setup  ## the everyday suite
	$(BIN)/python -m pytest -q -m "not slow and not clients and not wheel"

test-all: setup  ## with what takes long
	$(BIN)/python -m pytest -q

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup  ## closed-loop produce, interleaved with the bare floor and Apache Kafka where they are there
	$(BIN)/python -m blumfeld.bench.closed_loop --loadgen $(REFERENCES)/floor/loadgen.c \
	  --floor $(REFERENCES)/floor/floor_epoll.py $(if $(PEER),--peer $(PEER))

startup: setup  ## start-up to the first answer, and idle memory
	$(BIN)/python -m blumfeld.bench.startup $(if $(PEER),--peer $(PEER))

clients: setup  ## unmodified clients against this build: the matrix
	$(BIN)/python -m blumfeld.testing.clients $(if $(CLIENTS),--only "$(CLIENTS)") $(if $(PEER),--peer $(PEER))

bad-input: setup  ## what the broker makes of nonsense: the table
	$(BIN)/python -m blumfeld.testing.bad_input

mutants: setup  ## planted bugs, each of which must turn the tests red
	$(BIN)/python tools/mutants.py

crash: setup  ## crashes of storage at every file operation, and kill -9 of a broker under load
	$(BIN)/python -m blumfeld.testing.crash

oracle: setup  ## Apache Kafka reads what we wrote, answers what we answer; needs Java and the references
	$(BIN)/python -m pytest -q -m slow

simulation: setup  ## hours of virtual time, by seed
	$(BIN)/python -m blumfeld.testing.simulation --seeds $(SEEDS) --hours $(HOURS)

wheel-test: setup  ## the built wheel with a stranger's plug-in, in a fresh environment
	$(BIN)/python -m pytest -q -m wheel

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
