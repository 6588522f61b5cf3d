"""Files that a reader opens to follow a request: ``python -m campaigns walks``.

A broker runs in this process and serves each request some times, while a profiler notes the files. ``all`` has every
file of this repository that the request passes. ``own`` leaves out the ground, which serves every request; of the
requests that change a log it also leaves out what a produce passes, because appending is that walk. The aim is for the
figure in bold.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import attrs
from rich.table import Table

from blumfeld.testing.cluster import BROKER, COMBINED, LOOPBACK, NodePlace, node_places, voters
from blumfeld.testing.embedded import EmbeddedBroker
from blumfeld_bench.terminal import make_console
from campaigns import figures
from campaigns.bench.walks.client import TOPIC, Client
from campaigns.bench.walks.walk import Files, Walk, own, pass_on

PRODUCE = Walk("produce, acks=1", aim=20)
FETCH = Walk(
    "a follower's fetch",
    aim=12,
    roots=(
        "replication_isr/fetcher.py:Fetcher._go",
        "replication_isr/fetcher.py:Fetcher._answered",
        "replicas/partition.py:Partition._write",
        "replicas/partition.py:Partition._written",
        "replicas/partition.py:Partition._advance",
    ),
)
CREATE_TOPIC = Walk(
    "create topic",
    aim=18,
    start="api_19_create_topics.py:handlers.<locals>.create",
    doors=("raft/raft.py", "hosting/partition_manager.py"),
    beside=(
        "membership/config_warnings.py",
        "membership/lifecycle.py",
        "watching/end_watchers.py",
        "upkeep/retention.py",
        "consensus_kraft/broker_watch.py",
        "consensus_kraft/registration.py",
        "consensus_kraft/snapshots.py",
        "quorum/parked_fetches.py",
    ),
)
END_TXN = Walk("EndTxn to its markers", aim=14, start="transactions/handlers.py:TransactionApis.end")


@attrs.frozen
class Passed:
    """A walk and the files on it."""

    walk: Walk
    all: Files
    own: Files

    @property
    def counted(self) -> Files:
        """The files that the aim is for."""
        return self.all if self.walk is PRODUCE else self.own


def main() -> None:
    """Parse arguments, count, print the tables."""
    parser = figures.options("walks", __doc__, peer=False, rounds=None)
    parser.add_argument("--files", action="store_true", help="print the files of each walk, too")
    options = parser.parse_args()
    logging.getLogger("blumfeld").addHandler(
        logging.NullHandler()
    )  # a follower says that its leader has gone
    passed = list(measure())
    console = make_console()
    console.print(table(passed))
    for walk_files in passed if options.files else ():
        console.print(
            f"\n{walk_files.walk.name}\n  " + "\n  ".join(sorted(walk_files.counted)), highlight=False
        )
    figures.save(options.out, {entry.walk.name: sorted(entry.counted) for entry in passed})


def table(passed: list[Passed]) -> Table:
    """Return a row for each walk."""
    shown = figures.table("Files that a request passes", ("request",), ("all", "own", "aim"))
    for walk_files in passed:
        whole, less = str(len(walk_files.all)), str(len(walk_files.own))
        if walk_files.counted is walk_files.all:
            whole = f"[bold]{whole}[/bold]"
        else:
            less = f"[bold]{less}[/bold]"
        shown.add_row(walk_files.walk.name, whole, less, f"≤ {walk_files.walk.aim}")
    return shown


def measure() -> Iterator[Passed]:
    """Yield each walk."""
    with EmbeddedBroker(storage="storage_local") as broker, Client(broker.bootstrap_servers) as client:
        client.create(TOPIC)
        files = pass_on(PRODUCE, broker, client.produce, lambda: None)
        append = own(files)
        yield Passed(PRODUCE, files, append)
        files = pass_on(CREATE_TOPIC, broker, client.create, lambda: None)
        yield Passed(CREATE_TOPIC, files, own(files) - append)
        client.init_producer()
        files = pass_on(END_TXN, broker, client.end_transaction, client.begin_transaction)
        yield Passed(END_TXN, files, own(files) - append)
    with follower() as (broker, client):
        files = pass_on(FETCH, broker, client.produce, lambda: None)
        yield Passed(FETCH, files, own(files))


@contextmanager
def follower() -> Iterator[tuple[EmbeddedBroker, Client]]:
    """Run two nodes. Yield the one that follows, and a client of the other one, which leads."""
    places = node_places([LOOPBACK] * 2, roles=[COMBINED, BROKER])
    with (
        node(places[0], places) as leader,
        node(places[1], places) as broker,
        Client(leader.bootstrap_servers) as client,
    ):
        client.create(TOPIC, replicas=[1, 2])
        yield broker, client


def node(place: NodePlace, places: tuple[NodePlace, ...]) -> EmbeddedBroker:
    """Return one of two nodes, not started."""
    listeners = [{"name": "PLAINTEXT", "bind": f"{place.host}:{place.port}", "inter_broker": True}]
    if "controller" in place.roles:
        bind = f"{place.host}:{place.controller_port}"
        listeners.append({"name": "CONTROLLER", "kind": "controller", "bind": bind})
    return EmbeddedBroker(
        storage="storage_local",
        config={"controller.quorum.voters": voters(places)},
        manifest={
            "node": {"id": place.id, "cluster_id": "YS13YWxrLXRvLWZvbGxvdw", "roles": list(place.roles)},
            "network": {"listeners": listeners},
        },
    )


if __name__ == "__main__":
    main()
