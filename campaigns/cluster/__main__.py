"""``python -m campaigns cluster-faults``: faults of a cluster under load; exit 1 if a promise was broken."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import attrs
from rich.console import Console
from rich.markup import escape

from blumfeld.cli.cluster.state import ClusterError
from blumfeld.testing.cluster import LOOPBACK, node_places
from blumfeld.testing.process import NodeError
from blumfeld_kit.cluster import Cluster
from campaigns.clients.load.groups import JAVA, Groups
from campaigns.clients.load.java_producer import JavaProducer
from campaigns.clients.load.load import TOPIC, NoLoadError
from campaigns.clients.load.producers import Librdkafka, Make, with_log
from campaigns.cluster.contenders import (
    KAFKA,
    LAYOUTS,
    MIXED,
    OURS,
    Contender,
    contenders_of,
    this_build,
    with_kafka,
)
from campaigns.cluster.disks import Disks, NoDisksError
from campaigns.cluster.ensemble import Ensemble, started_ensemble
from campaigns.cluster.faults import (
    CUTS,
    DEFAULT_FAULTS,
    ENSEMBLE,
    ENSEMBLE_FAULTS,
    ENSEMBLE_TARGETS,
    NETWORK,
    SESSIONS,
    ZOOKEEPER_FAULTS,
    BadFaultError,
    Fault,
    plan_of,
)
from campaigns.cluster.namespaces import Namespaces
from campaigns.cluster.report import (
    CampaignReport,
    ContenderReport,
    account_table,
    distribution_table,
    fault_table,
)
from campaigns.cluster.rounds import DATA, Run, Settings
from campaigns.cluster.storm import FACULTIES, Wave, waves
from campaigns.figures import save
from campaigns.references import PEER_VARIABLE
from campaigns.terminal import add_node_options, console_of, folder_of, print_wrong, refused
from campaigns.zookeeper_server import (
    SESSION_TIMEOUT_MS,
    zookeeper_settings,
)

DISK_MB = 700
PRODUCER_LOG, JAVA_LOG = "producer.log", "java-producer.log"
CONNECT = "{zookeeper}"
"""Stands for ``zookeeper.connect`` until the servers have their places."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if every run is good (:attr:`ContenderReport.is_good`), 1 if not, 2 for wrong input."""
    given = _parser().parse_args(arguments)
    console = console_of()
    try:
        faults, needs = _plan(given)
        contenders = _contenders(given)
    except (BadFaultError, ValueError) as error:
        return refused("cluster-faults", error)
    settings = Settings(
        partitions=given.partitions,
        rate_per_s=given.rate,
        down_s=given.down_s,
        settle_s=given.settle_s,
        zookeeper_down_s=given.zookeeper_down_s,
    )
    with contextlib.ExitStack() as stack:
        try:
            ends = len(LAYOUTS[given.layout]) + (given.zookeeper_servers if given.zookeeper else 0)
            wires = stack.enter_context(Namespaces(ends)) if needs.wires else None
        except ClusterError as error:
            return refused("cluster-faults", error)
        folder = folder_of("cluster", given, stack)
        try:
            ensemble = None
            if given.zookeeper:
                nodes, servers = len(LAYOUTS[given.layout]), given.zookeeper_servers
                ensemble = stack.enter_context(
                    started_ensemble(folder / ENSEMBLE, servers, wires, nodes, needs.doors)
                )
        except (FileNotFoundError, NodeError) as error:
            return refused("cluster-faults", error)
        reports: list[ContenderReport] = []
        absent: list[str] = []
        for contender in contenders:
            try:
                report = _measured(
                    contender, given, faults, settings, folder, wires, needs.disks, ensemble, console
                )
            except (NodeError, NoLoadError, NoDisksError) as error:
                absent.append(contender.name)
                console.print(f"[red]✗ {contender.name}: {escape(str(error))}[/]")
                continue
            reports.append(report)
            console.print(fault_table(report))
            if report.said:
                console.print("; ".join(f"{name}: {count}" for name, count in report.said.items()))
            print_wrong(console, report.wrong)
            save(given.out, _campaign(settings, given, reports))
    if reports:
        console.print(distribution_table(reports))
        console.print(account_table(reports))
    return 0 if not absent and all(report.is_good for report in reports) else 1


@attrs.frozen
class Needs:
    """What the faults of a run need beside processes."""

    wires: bool
    """A network of their own."""
    disks: bool
    """Small disks."""
    doors: bool
    """Doors between the nodes and their ZooKeeper."""


def _plan(given: argparse.Namespace) -> tuple[Iterable[Fault | Wave], Needs]:
    """Return the faults, and what they need.

    :raises BadFaultError: a name is not that of a fault, or the faults don't fit the cluster
    """
    if given.storm_s and given.zookeeper:
        raise BadFaultError("--storm-s draws its faults for a cluster of KRaft: leave out it or --zookeeper")
    if given.storm_s:
        actions = tuple(given.faults.split(",")) if given.faults else tuple(FACULTIES)
        if absent := [action for action in actions if action not in FACULTIES]:
            raise BadFaultError(f"found {absent[0]}; allowed with --storm-s: {', '.join(FACULTIES)}")
        nodes = range(1, len(LAYOUTS[given.layout]) + 1)
        plan = waves(given.seed, actions, nodes)
        return _until(given.storm_s, plan), Needs(wires=True, disks="fill" in actions, doors=False)
    several = ENSEMBLE_FAULTS if given.zookeeper_servers >= len(ENSEMBLE_TARGETS) else ()
    defaults = (*ZOOKEEPER_FAULTS, *several) if given.zookeeper else DEFAULT_FAULTS
    faults = plan_of(given.faults.split(",") if given.faults else defaults, given.rounds)
    hit = {fault.action for fault in faults}
    at_zookeeper = any(fault.target in ENSEMBLE_TARGETS for fault in faults)
    if not given.zookeeper and (at_zookeeper or not SESSIONS.isdisjoint(hit)):
        raise BadFaultError(f"a fault of {ENSEMBLE} needs --zookeeper: this cluster has none")
    if given.zookeeper and "fill" in hit:
        raise BadFaultError("--zookeeper has no small disks: leave out fill")
    return faults, Needs(
        wires=not NETWORK.isdisjoint(hit),
        disks="fill" in hit,
        doors=not SESSIONS.isdisjoint(hit),
    )


def _until(seconds: float, plan: Iterable[Wave]) -> Iterator[Wave]:
    """Yield waves for so long, counted from the first one."""
    end = time.monotonic() + seconds
    yield from itertools.takewhile(lambda _: time.monotonic() < end, plan)


def _cluster(
    contender: Contender,
    given: argparse.Namespace,
    folder: Path,
    wires: Namespaces | None,
    ensemble: Ensemble | None,
) -> Cluster:
    roles = LAYOUTS[given.layout]
    home = folder / contender.name
    connect = ensemble.connect if ensemble is not None else ""
    commands = {
        of: tuple(word.replace(CONNECT, connect) for word in command)
        for of, command in contender.commands.items()
    }
    if wires is None:
        return Cluster(commands, node_places([LOOPBACK] * len(roles), given.port, roles), home)
    places = node_places(wires.hosts[: len(roles)], given.port, roles)
    return Cluster(commands, places, home, wires.prefixes[: len(roles)])


def _measured(
    contender: Contender,
    given: argparse.Namespace,
    faults: Iterable[Fault | Wave],
    settings: Settings,
    folder: Path,
    wires: Namespaces | None,
    needs_disks: bool,
    ensemble: Ensemble | None,
    console: Console,
) -> ContenderReport:
    """Run one contender.

    :raises NodeError: its cluster did not start
    :raises NoLoadError: it takes no records
    :raises NoDisksError: this process may not mount disks
    """
    cluster = _cluster(contender, given, folder, wires, ensemble)
    disks = Disks([node.folder / DATA for node in cluster.nodes], given.disk_mb) if needs_disks else None
    make_producer = with_log(cluster.folder / PRODUCER_LOG) if given.storm_s else Librdkafka
    groups = Groups(cluster.addresses, TOPIC, given.partitions) if given.storm_s else None
    more: dict[str, Make] = {}
    if ensemble is not None:
        java = given.peer is not None and not given.without_java
        members = (JAVA,) if java else ()
        groups = Groups(cluster.addresses, TOPIC, given.partitions, ["classic"], members)
        if java:
            os.environ[PEER_VARIABLE] = str(given.peer)
            more[JAVA] = partial(JavaProducer, log=cluster.folder / JAVA_LOG)
    console.print(f"{contender.name}: faults on {len(cluster.nodes)} nodes")

    def say(line: str) -> None:
        console.print(escape(line))

    try:
        with ensemble.opened(cluster) if ensemble is not None else contextlib.nullcontext():
            run = Run(contender, cluster, settings, wires, say, make_producer, disks, groups, ensemble, more)
            return run.run(faults)
    except NoLoadError as error:
        printed = (f"{node.log_path} ends with:\n{node.printed()}" for node in cluster.nodes)
        raise NoLoadError("\n".join((str(error), *printed))) from error
    finally:
        cluster.stop()
        if disks is not None:
            disks.end(cluster.folder / "kept" if given.folder is not None else None)


def _contenders(given: argparse.Namespace) -> list[Contender]:
    """Return the contenders that were asked for.

    :raises ValueError: there is none, a name is unknown, or --manifest or --set would have no effect
    """
    names = (
        given.only.split(",")
        if given.only
        else [OURS, *([KAFKA] if given.peer and not given.zookeeper else [])]
    )
    if given.zookeeper and names != [OURS]:
        raise ValueError(f"--zookeeper: found --only {','.join(names)}; allowed: {OURS}")
    laid = list(given.set)
    if given.zookeeper:
        laid += zookeeper_settings(CONNECT, SESSION_TIMEOUT_MS)
    ours = this_build(given.manifest, laid)
    if given.layout == MIXED:
        if not given.zookeeper or given.peer is None:
            raise ValueError(
                f"--layout {MIXED} needs --zookeeper, and --peer with the script that starts Apache Kafka"
            )
        ours = with_kafka(ours, given.peer, CONNECT, SESSION_TIMEOUT_MS)
    elif given.zookeeper and given.layout == "apart":
        raise ValueError("--zookeeper has no nodes that are only controllers: found --layout apart")
    contenders = contenders_of(names, ours, given.peer)
    if OURS not in names and (given.manifest is not None or given.set):
        raise ValueError(
            f"--manifest and --set change the nodes of {OURS}, and --only {given.only} runs none of them. "
            f"Leave them out, or name {OURS} in --only, too"
        )
    return contenders


def _campaign(
    settings: Settings, given: argparse.Namespace, reports: Sequence[ContenderReport]
) -> CampaignReport:
    return CampaignReport(
        created=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        partitions=settings.partitions,
        rate_per_s=settings.rate_per_s,
        down_s=settings.down_s,
        layout=given.layout,
        contenders=tuple(reports),
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m campaigns cluster-faults",
        description="Kills, pauses, stops and restarts of three nodes under load, this build and Apache Kafka by the "
        "same script: time without an acknowledgement, records lost or doubled.",
    )
    parser.add_argument(
        "--peer", type=Path, help="script that starts Apache Kafka; without it only this build is run"
    )
    parser.add_argument(
        "--only", metavar="NAMES", help=f"contenders to run: {OURS}, {KAFKA}, or both with a comma"
    )
    parser.add_argument(
        "--faults",
        metavar="NAMES",
        help=f"faults with commas, run in this order; {','.join(DEFAULT_FAULTS)} if not given; "
        f"also {','.join(CUTS)}",
    )
    parser.add_argument(
        "--layout",
        choices=LAYOUTS,
        default="combined",
        help="three nodes; three brokers and three controllers; or, with --zookeeper, three nodes and a Kafka 3.9",
    )
    parser.add_argument(
        "--storm-s",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="instead of one fault after the other: waves of faults that overlap, for so long, under two groups; "
        f"--faults takes {','.join(FACULTIES)} then",
    )
    parser.add_argument("--seed", type=int, default=0, help="the storm is drawn from it")
    parser.add_argument(
        "--disk-mb", type=int, default=DISK_MB, help="size of each node's disk where fill is among the faults"
    )
    parser.add_argument("--rounds", type=int, default=1, help="how often the list of faults is run through")
    parser.add_argument(
        "--rate", type=float, default=Settings().rate_per_s, help="records a second, over all partitions"
    )
    parser.add_argument("--partitions", type=int, default=Settings().partitions)
    parser.add_argument(
        "--down-s",
        type=float,
        default=Settings().down_s,
        help="seconds that a killed or paused node stays away",
    )
    parser.add_argument(
        "--settle-s", type=float, default=Settings().settle_s, help="seconds of load before and after a fault"
    )
    _add_zookeeper_options(parser)
    parser.add_argument("--manifest", type=Path, help="what each node of this build is made of")
    parser.add_argument(
        "--port", type=int, default=0, help="the nodes take two ports each from here on; 0: any free ones"
    )
    add_node_options(parser)
    return parser


def _add_zookeeper_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--zookeeper",
        action="store_true",
        help="metadata in a real ZooKeeper that is started and hurt as well, and a group that consumes; "
        f"--faults has {','.join(f for f in ZOOKEEPER_FAULTS if f not in DEFAULT_FAULTS)} too",
    )
    parser.add_argument(
        "--zookeeper-down-s",
        type=float,
        default=Settings().zookeeper_down_s,
        metavar="SECONDS",
        help="seconds that ZooKeeper stays away",
    )
    parser.add_argument(
        "--zookeeper-servers",
        type=int,
        default=1,
        metavar="N",
        help=f"with --zookeeper: servers of the ensemble; from 3 on --faults has {','.join(ENSEMBLE_FAULTS)} too",
    )
    parser.add_argument(
        "--without-java",
        action="store_true",
        help="with --zookeeper and --peer: leave out the producer and the group's member of Java",
    )


if __name__ == "__main__":
    sys.exit(main())
