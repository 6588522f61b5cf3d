"""``python -m campaigns cluster-faults``: faults of a cluster under load; exit 1 if a promise was broken."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from blumfeld.cli.cluster.state import ClusterError
from blumfeld.testing.cluster import LOOPBACK, node_places
from blumfeld.testing.process import NodeError, free_port
from blumfeld_kit.cluster import Cluster
from campaigns.clients.load.groups import Groups
from campaigns.clients.load.load import TOPIC, NoLoadError
from campaigns.clients.load.producers import Librdkafka, with_log
from campaigns.cluster.contenders import (
    KAFKA,
    LAYOUTS,
    MIXED,
    OURS,
    Contender,
    contenders_of,
    this_build,
    with_kafka,
    zookeeper_settings,
)
from campaigns.cluster.disks import Disks, NoDisksError
from campaigns.cluster.faults import (
    CUTS,
    DEFAULT_FAULTS,
    ENSEMBLE,
    NETWORK,
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
from campaigns.cluster.rounds import DATA, Ensemble, Run, Settings
from campaigns.cluster.storm import FACULTIES, Wave, waves
from campaigns.cluster.tree import Tree
from campaigns.figures import save
from campaigns.terminal import add_node_options, console_of, print_wrong, refused
from campaigns.zookeeper_server import ZooKeeperServer

DISK_MB = 700
PRODUCER_LOG = "producer.log"
CHROOT = "blumfeld"
SESSION_TIMEOUT_MS = 3000
"""The session of a node with ZooKeeper is short, so that a paused node soon loses it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if every run is good (:attr:`ContenderReport.is_good`), 1 if not, 2 for wrong input."""
    given = _parser().parse_args(arguments)
    given.zookeeper_port = free_port() if given.zookeeper else 0
    console = console_of()
    try:
        faults, needs_wires, needs_disks = _plan(given)
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
            wires = stack.enter_context(Namespaces(len(LAYOUTS[given.layout]))) if needs_wires else None
        except ClusterError as error:
            return refused("cluster-faults", error)
        folder = given.folder or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="blumfeld-cluster-"))
        )
        try:
            ensemble = stack.enter_context(_ensemble(given, folder)) if given.zookeeper else None
        except (FileNotFoundError, NodeError) as error:
            return refused("cluster-faults", error)
        reports: list[ContenderReport] = []
        absent: list[str] = []
        for contender in contenders:
            try:
                report = _measured(
                    contender, given, faults, settings, folder, wires, needs_disks, ensemble, console
                )
            except (NodeError, NoLoadError, NoDisksError) as error:
                absent.append(contender.name)
                console.print(f"[red]✗ {contender.name}: {escape(str(error))}[/]")
                continue
            reports.append(report)
            console.print(fault_table(report))
            print_wrong(console, report.wrong)
            save(given.out, _campaign(settings, given, reports))
    if reports:
        console.print(distribution_table(reports))
        console.print(account_table(reports))
    return 0 if not absent and all(report.is_good for report in reports) else 1


def _plan(given: argparse.Namespace) -> tuple[Iterable[Fault | Wave], bool, bool]:
    """Return the faults, whether they need a network of their own, and whether they need small disks.

    :raises BadFaultError: a name is not that of a fault
    """
    if given.storm_s and given.zookeeper:
        raise BadFaultError(
            "--storm-s has faults of the network, and --zookeeper a server on loopback. Leave one out"
        )
    if given.storm_s:
        actions = tuple(given.faults.split(",")) if given.faults else tuple(FACULTIES)
        if absent := [action for action in actions if action not in FACULTIES]:
            raise BadFaultError(f"found {absent[0]}; allowed with --storm-s: {', '.join(FACULTIES)}")
        nodes = range(1, len(LAYOUTS[given.layout]) + 1)
        return _until(given.storm_s, waves(given.seed, actions, nodes)), True, "fill" in actions
    defaults = ZOOKEEPER_FAULTS if given.zookeeper else DEFAULT_FAULTS
    faults = plan_of(given.faults.split(",") if given.faults else defaults, given.rounds)
    actions = tuple(fault.action for fault in faults)
    if not given.zookeeper and any(fault.target == ENSEMBLE for fault in faults):
        raise BadFaultError(f"a fault of {ENSEMBLE} needs --zookeeper: this cluster has none")
    if given.zookeeper and not NETWORK.isdisjoint(actions):
        raise BadFaultError(
            "--zookeeper has no faults of the network: the server is on loopback. Leave them out"
        )
    return faults, not NETWORK.isdisjoint(actions), "fill" in actions


def _until(seconds: float, plan: Iterable[Wave]) -> Iterator[Wave]:
    """Yield waves for so long, counted from the first one."""
    end = time.monotonic() + seconds
    yield from itertools.takewhile(lambda _: time.monotonic() < end, plan)


def _cluster(
    contender: Contender, given: argparse.Namespace, folder: Path, wires: Namespaces | None
) -> Cluster:
    roles = LAYOUTS[given.layout]
    home = folder / contender.name
    if wires is None:
        places = node_places([LOOPBACK] * len(roles), given.port, roles)
        return Cluster(contender.commands, places, home)
    return Cluster(contender.commands, node_places(wires.hosts, given.port, roles), home, wires.prefixes)


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
    cluster = _cluster(contender, given, folder, wires)
    disks = Disks([node.folder / DATA for node in cluster.nodes], given.disk_mb) if needs_disks else None
    make_producer = with_log(cluster.folder / PRODUCER_LOG) if given.storm_s else Librdkafka
    groups = Groups(cluster.addresses, TOPIC, given.partitions) if given.storm_s else None
    if ensemble is not None:
        groups = Groups(cluster.addresses, TOPIC, given.partitions, ["classic"])
    console.print(f"{contender.name}: faults on {len(cluster.nodes)} nodes")

    def say(line: str) -> None:
        console.print(escape(line))

    try:
        return Run(contender, cluster, settings, wires, say, make_producer, disks, groups, ensemble).run(
            faults
        )
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
        laid += zookeeper_settings(_connect(given.zookeeper_port), SESSION_TIMEOUT_MS)
    ours = this_build(given.manifest, laid)
    if given.layout == MIXED:
        if not given.zookeeper or given.peer is None:
            raise ValueError(
                f"--layout {MIXED} needs --zookeeper, and --peer with the script that starts Apache Kafka"
            )
        ours = with_kafka(ours, given.peer, _connect(given.zookeeper_port), SESSION_TIMEOUT_MS)
    elif given.zookeeper and given.layout == "apart":
        raise ValueError("--zookeeper has no nodes that are only controllers: found --layout apart")
    contenders = contenders_of(names, ours, given.peer)
    if OURS not in names and (given.manifest is not None or given.set):
        raise ValueError(
            f"--manifest and --set change the nodes of {OURS}, and --only {given.only} runs none of them. "
            f"Leave them out, or name {OURS} in --only, too"
        )
    return contenders


def _connect(port: int) -> str:
    return f"{LOOPBACK}:{port}/{CHROOT}"


@contextlib.contextmanager
def _ensemble(given: argparse.Namespace, folder: Path) -> Iterator[Ensemble]:
    """Start a ZooKeeper server, and end it.

    :raises FileNotFoundError: this machine has none
    :raises NodeError: it did not start
    """
    server = ZooKeeperServer(folder / ENSEMBLE, port=given.zookeeper_port)
    try:
        server.start()
        with Tree(_connect(given.zookeeper_port)) as tree:
            yield Ensemble(server, tree)
    finally:
        server.kill()


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
    parser.add_argument("--manifest", type=Path, help="what each node of this build is made of")
    parser.add_argument(
        "--port", type=int, default=0, help="the nodes take two ports each from here on; 0: any free ones"
    )
    add_node_options(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
