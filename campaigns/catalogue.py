"""Every campaign by name: what it shows, how long it takes, what it runs. ``python -m campaigns`` prints this list."""

from __future__ import annotations

import attrs

CLI = "blumfeld.cli.main"
RESULTS = "bench-results"
"""Where results go unless an option says otherwise; it is made when a run names it."""
JAVA = "Java and Kafka"
ARCHIVE = "make archive-setup"


@attrs.frozen
class Run:
    """One process of a campaign.

    ``fixed`` always stands in its command line. ``defaults`` give way as soon as the person names an option.
    ``references`` are options whose value is a reference program: each is added where the program is found, unless
    the person names that option. A ``{name}`` in ``fixed`` or ``defaults`` stands for a reference. An option in
    ``defaults`` whose reference is absent is left out; one in ``fixed`` is an error.
    """

    module: str
    """What ``python -m`` runs; a path that ends in ``.py`` is a script."""
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
    """What must be there beside ``make setup``; empty if nothing."""


PEER = (("--peer", "peer"),)
CAPTURE = (("--capture", "capture"),)


def _bench(name: str, sentence: str, duration: str, *runs: Run, needs: str = "") -> Campaign:
    return Campaign(name, sentence, duration, runs, needs)


def _archive(name: str, sentence: str, duration: str, run: Run) -> Campaign:
    return Campaign(name, sentence, duration, (run,), ARCHIVE)


CLIENTS_AND_FAULTS = (
    Campaign(
        "clients",
        "Unmodified Kafka clients against this build: the matrix.",
        "10 min",
        (Run("campaigns.clients", references=PEER),),
        "Java, Go, Node, kcat; those that are absent are left out",
    ),
    Campaign(
        "migration",
        "Live groups of real clients roll from the classic protocol to KIP-848 and back.",
        "10 min",
        (Run("campaigns.clients.migration", references=PEER),),
    ),
    Campaign(
        "kgo-suite",
        "The test suite of franz-go's package kgo against three nodes of this build.",
        "10 min",
        (Run("campaigns.kgo_suite", defaults=("--out", f"{RESULTS}/kgo-suite.json"), references=PEER),),
        "Go",
    ),
    Campaign(
        "bad-input",
        "What the broker answers to malformed frames, requests, batches and start-up arguments.",
        "1 min",
        (Run("campaigns.bad_input"),),
    ),
    Campaign(
        "connection-faults",
        "Clients that are killed, slow, half-closed, idle or too many: nothing leaks, others are served.",
        "10 min",
        (Run("campaigns.connection_faults"),),
    ),
    Campaign(
        "stalls",
        "The largest request of each API: how long other connections wait meanwhile, beside Kafka.",
        "20 min",
        (Run("campaigns.stalls", defaults=("--out", f"{RESULTS}/stalls.json"), references=PEER),),
    ),
    Campaign(
        "crash",
        "Crashes of a storage at every file operation, and kill -9 of a broker under load.",
        "10 min",
        (Run("campaigns.crash"),),
    ),
    Campaign(
        "cluster-faults",
        "Three nodes under load, killed, paused, stopped, cut off: how long nothing is acknowledged, what is lost.",
        "15 min",
        (Run("campaigns.cluster", defaults=("--out", f"{RESULTS}/cluster-faults.json"), references=PEER),),
        JAVA,
    ),
    Campaign(
        "metadata-scale",
        "Start, fail-over of the controller and catch-up of a broker with up to a million partitions, beside Kafka.",
        "40 min",
        (
            Run(
                "campaigns.metadata_scale",
                defaults=("--out", f"{RESULTS}/metadata-scale.json"),
                references=PEER,
            ),
        ),
        JAVA,
    ),
    Campaign(
        "simulation",
        "A broker with clients, kills, power cuts and full disks on virtual time, by seed.",
        "15 min",
        (Run("blumfeld_kit.simulation", defaults=("--seeds", "0-19", "--hours", "1")),),
    ),
    Campaign(
        "swarms",
        "Three nodes with clients on virtual time, under faults of every class that each seed draws.",
        "5 min",
        (Run(CLI, fixed=("simulate",), defaults=("--seeds", "0-199", "--seconds", "120")),),
    ),
    Campaign(
        "rot",
        "The same while bits flip below the checksums of batches: nothing else is lost, and nothing in silence.",
        "5 min",
        (
            Run(
                CLI, fixed=("simulate", "--workload", "rot"), defaults=("--seeds", "0-199", "--seconds", "60")
            ),
        ),
    ),
    Campaign(
        "groups",
        "Group members of both protocols on virtual time, by seed, with an oracle.",
        "10 min",
        (Run("campaigns.groups", defaults=("--seeds", "0-19", "--minutes", "10")),),
    ),
    Campaign(
        "group-kills",
        "A broker killed in the middle of rebalances and commits of real clients.",
        "15 min",
        (Run("campaigns.group_kills", defaults=("--seeds", "0-9")),),
    ),
    Campaign(
        "transaction-kills",
        "Real clients copy a market feed in transactions while brokers and clients are killed.",
        "40 min",
        (
            Run(
                "campaigns.transactions",
                defaults=("--out", f"{RESULTS}/transaction-kills.json"),
                references=(*CAPTURE, *PEER),
            ),
        ),
        "a capture; Java and Kafka, Go",
    ),
    Campaign(
        "oracle",
        "The slow tests: Apache Kafka reads what we wrote and answers what we answer.",
        "30 min",
        (Run("pytest", fixed=("-q", "-m", "slow")),),
        JAVA,
    ),
    Campaign(
        "mutants",
        "Planted bugs, each of which must turn the tests red.",
        "40 min",
        (Run("tools/mutants.py"),),
    ),
)
"""Campaigns that show that promises are kept."""

ARCHIVES = (
    _archive(
        "archive",
        "One feed from a running broker into files, and what DuckDB, Polars, pyarrow and Spark read in them.",
        "5 min",
        Run("campaigns.archive", ("golden", "--reader", "auto"), references=CAPTURE),
    ),
    _archive(
        "archive-kills",
        "Driver, workers, JVM and broker killed while it archives.",
        "30 min",
        Run("campaigns.archive", ("kills",), ("--kills", "20"), PEER),
    ),
    _archive(
        "archive-oracle",
        "Books beside the exchange's own best bid and ask, and gaps beside its numbering.",
        "10 min",
        Run("campaigns.archive", ("oracle",), references=(*CAPTURE, ("--capture", "spot"))),
    ),
    _archive(
        "archive-bad-input",
        "Surroundings it can't work with: what is said, and that nothing is lost.",
        "10 min",
        Run("campaigns.archive", ("bad-input",)),
    ),
    _archive(
        "archive-bench",
        "Rate and size beside Spark's connector, from_json and Parquet sink; needs a capture and archive-jars.",
        "20 min",
        Run("campaigns.archive", ("bench",), ("--out", f"{RESULTS}/archive.json"), CAPTURE),
    ),
    Campaign(
        "archive-jars",
        "Fetch the Kafka connector that fits pyspark 4.3 into ~/.m2, for `--reader jvm`.",
        "1 min",
        (Run("campaigns.archive.jars"),),
        "Maven",
    ),
)
"""Campaigns of the archive."""

BENCHES = (
    _bench(
        "closed-loop",
        "Produce in a closed loop, interleaved with bare servers and Kafka.",
        "20 min",
        Run(
            "campaigns.bench.closed_loop",
            fixed=("--loadgen", "{loadgen}"),
            defaults=(
                *("--variant", "default --label epoll"),
                *("--variant", "default --set network.plugin=net_uring --label io_uring"),
                *("--floor", "{floor_epoll}", "--small-floor", "{floor_ring}"),
            ),
            references=PEER,
        ),
        needs="a C compiler, a load generator",
    ),
    _bench(
        "compare",
        "Every workload of `blumfeld bench`, this build beside Kafka 4.3.1 and 4.4.0.",
        "over 1 h",
        Run("campaigns.bench.compare", fixed=("--peer", "{peer}")),
        needs=JAVA,
    ),
    _bench(
        "fairness",
        "Whether the bench favours a server: one load in four settings, with Kafka's own tool beside it.",
        "20 min",
        Run(
            "campaigns.bench.fairness",
            fixed=("--peer", "{peer}"),
            defaults=("--out", f"{RESULTS}/fairness.json"),
        ),
        needs=JAVA,
    ),
    _bench(
        "transports",
        "epoll beside io_uring from 1 to 2,000 connections, and sendfile beside copying.",
        "40 min",
        Run(
            CLI,
            (
                *(
                    "bench",
                    "default --label epoll",
                    "default --set network.plugin=net_uring --label io_uring",
                ),
                *("--workload", "turn", "--out", f"{RESULTS}/turn.json"),
            ),
            ("--rounds", "5"),
        ),
        Run(
            CLI,
            (
                *("bench", "default --label sendfile"),
                "default --set network.options.file_regions=copy --label copy",
                *("--workload", "catch-up", "--out", f"{RESULTS}/regions.json"),
            ),
            ("--rounds", "5"),
        ),
    ),
    _bench(
        "rebalance",
        "What a rebalance costs: eager, cooperative, KIP-848, this build beside Kafka; --quick for a look.",
        "20 min",
        Run("campaigns.bench.rebalance", fixed=("--peer", "{peer}")),
        needs=JAVA,
    ),
    _bench(
        "decisions",
        "The longest turn of a controller in a cluster of 10⁵ and 10⁶ partitions: a change, a fencing, a snapshot.",
        "5 min",
        Run("campaigns.bench.decisions", defaults=("--out", f"{RESULTS}/decisions.json")),
    ),
    _bench(
        "instructions",
        "Instructions and system calls of one produce request, beside bare servers.",
        "3 min",
        Run(
            "campaigns.bench.counting.instructions",
            defaults=("--floor", "{floor_epoll}", "--floor", "{floor_ring}"),
        ),
        Run("campaigns.bench.counting.instructions", defaults=("--set", "network.plugin=net_uring")),
        needs="valgrind, strace",
    ),
    _bench(
        "steps",
        "Instructions of one produce request, step by step through the broker.",
        "5 min",
        Run("campaigns.bench.counting.steps"),
        needs="valgrind",
    ),
    _bench(
        "codec",
        "The wire codec beside kio's and kafka-python's, on the same bytes.",
        "3 min",
        Run("campaigns.bench.codec.contest"),
    ),
    _bench(
        "engine",
        "Append and read rate of the log engine alone, beside a bare loop of system calls.",
        "5 min",
        Run("campaigns.bench.storage.engine"),
    ),
    _bench(
        "compaction",
        "Log compaction beside Kafka's cleaner on the same log.",
        "15 min",
        Run("campaigns.bench.storage.compaction", references=PEER),
    ),
    _bench(
        "while-compacting",
        "What a producer feels while the cleaner works.",
        "3 min",
        Run("campaigns.bench.storage.while_compacting"),
    ),
    _bench(
        "recovery",
        "A start after a kill and after a clean stop on a full directory, beside Kafka on the same bytes.",
        "15 min",
        Run("campaigns.bench.starts.recovery", references=PEER),
    ),
    _bench(
        "startup",
        "Start-up to the first answer, and idle memory, beside Kafka.",
        "2 min",
        Run("campaigns.bench.starts.startup", references=PEER),
    ),
    _bench(
        "group-load",
        "How long a killed node takes to have 10,000 groups of 100 offsets back, beside Kafka.",
        "10 min",
        Run("campaigns.bench.starts.group_load", references=PEER),
    ),
    _bench(
        "assignment",
        "What heartbeats feel while 10,000 partitions are dealt to 1,000 members again and again.",
        "3 min",
        Run("campaigns.bench.assignment"),
    ),
)
"""Measurements that no verb of ``blumfeld bench`` makes alone."""

CAMPAIGNS = {one.name: one for one in (*CLIENTS_AND_FAULTS, *ARCHIVES, *BENCHES)}
"""All campaigns by name, in the order of the list."""
