"""One contender: its cluster is started, put under load and hit by one fault after the other; then the account."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import attrs

from blumfeld.cli.cluster.state import ClusterError
from blumfeld.testing.process import STOP_TIMEOUT_S, NodeError
from blumfeld_kit.cluster import Cluster, Node
from campaigns.clients.load.groups import Groups
from campaigns.clients.load.load import TOPIC, Load
from campaigns.clients.load.producers import CUT_SHORT_S, FINISH_S, Librdkafka, Make
from campaigns.cluster.contenders import Contender
from campaigns.cluster.disks import Disks
from campaigns.cluster.ensemble import Ensemble
from campaigns.cluster.faults import ROLLING, SESSIONS, Fault, Leadership, NoTargetError, targets_of
from campaigns.cluster.gaps import Gap, gap_of
from campaigns.cluster.harm import Harm
from campaigns.cluster.namespaces import Namespaces
from campaigns.cluster.observer import LeaderWatch, Observer
from campaigns.cluster.replicas import differences
from campaigns.cluster.report import ContenderReport, FaultReport
from campaigns.cluster.sessions import NoSessionError
from campaigns.cluster.storm import Wave
from campaigns.cluster.tree import GONE
from campaigns.zookeeper_server import ZOOKEEPER

DATA = "data"
"""A node's data, in its folder."""
ENDED_CHARS = 300
OWNED_S = 60.0
"""Longest time that a group may take until each partition has an owner, once the cluster is whole."""
EVENTS: Mapping[str, str] = {
    "controllers elected": "elected as controller",
    "sessions that expired in living nodes": "the ZooKeeper session is over",
    "controllers whose writes were fenced": "a controller's write was fenced",
}
"""Lines in the logs of nodes on a ZooKeeper."""
MORE_PER_S = 100.0
"""Records a second of each further producer."""
WRONG_MAX = 100
"""Broken promises that a report holds; the counts hold all."""


@attrs.frozen
class Settings:
    """Settings of a run, the same for all contenders."""

    partitions: int = 6
    in_sync_min: int = 2
    """The topic's min.insync.replicas."""
    rate_per_s: float = 1000.0
    down_s: float = 15.0
    """Time that a killed, paused or cut node stays away: longer than Kafka's broker.session.timeout.ms of 9 s."""
    zookeeper_down_s: float = 60.0
    """The same for the ZooKeeper server."""
    steady_s: float = 10.0
    """Load before the first fault."""
    settle_s: float = 3.0
    """Load after the replicas are in sync again, and once more after the election of preferred leaders."""
    heal_s: float = 60.0
    """Longest wait until all replicas are in sync again, and all voters follow the quorum."""


class Run:
    """A run of one contender. The caller stops the cluster."""

    def __init__(
        self,
        contender: Contender,
        cluster: Cluster,
        settings: Settings,
        wires: Namespaces | None,
        say: Callable[[str], None],
        make_producer: Make = Librdkafka,
        disks: Disks | None = None,
        groups: Groups | None = None,
        ensemble: Ensemble | None = None,
        more: Mapping[str, Make] = {},
    ) -> None:
        """:param ensemble: of a cluster that keeps its metadata in ZooKeeper
        :param more: further producers, each by the topic that it writes to"""
        self._contender = contender
        self._cluster = cluster
        self._settings = settings
        servers = len(ensemble.servers) if ensemble is not None else 0
        self._harm = Harm(cluster, wires, disks, ensemble.doors if ensemble is not None else None, servers)
        self._groups = groups
        self._say = say
        self._load = Load(
            cluster.addresses, settings.partitions, settings.rate_per_s, make_producer=make_producer
        )
        self._more = [
            Load(cluster.addresses, settings.partitions, MORE_PER_S, topic, make)
            for topic, make in more.items()
        ]
        self._loads = (self._load, *self._more)
        self._ensemble = ensemble
        self._observer = Observer(cluster, TOPIC, ensemble.tree if ensemble is not None else None)
        self._began = 0.0

    def run(self, faults: Iterable[Fault | Wave]) -> ContenderReport:
        """Run all faults and waves. A node that does not come back ends the run, and so does a wire that can't be cut
        or healed; the account is made all the same.

        :param faults: an iterator is asked for its next fault when the cluster has healed from the one before it

        :raises NodeError: the cluster did not start
        :raises NoLoadError: it takes no topic, or no records
        """
        settings, load = self._settings, self._load
        self._cluster.start()
        for each in self._loads:
            each.make_topic(len(self._cluster.brokers), {"min.insync.replicas": str(settings.in_sync_min)})
        if not self._observer.await_whole(settings.heal_s):
            load.wrong.append(f"the new topic is not in sync: {self._observer.describe()}")
        reports: list[FaultReport] = []
        wait_s = CUT_SHORT_S
        try:
            for each in self._loads:
                each.start()
            if self._groups is not None:
                self._groups.start()
            self._began = time.monotonic()
            time.sleep(settings.steady_s)
            steady_s = max(gap.longest_s for gap in self._gaps(self._began, time.monotonic()))
            self._all(faults, reports)
            wait_s = FINISH_S
        finally:
            # A producer that is left would go on beside the next contender.
            for each in self._loads:
                each.finish(wait_s)
            if self._groups is not None and wait_s != FINISH_S:
                self._groups.end()
        if self._groups is not None:
            self._groups.finish(load.ends())
            load.wrong.extend(self._groups.promises.wrong)
        account = load.account()
        for other in self._more:
            account.add(other.account())
            load.wrong.extend(other.wrong)
        if self._groups is not None:
            self._cluster.stop()
            load.wrong.extend(differences([node.folder / DATA for node in self._cluster.brokers]))
        return ContenderReport(
            contender=self._contender.name,
            commands=tuple(node.command for node in self._cluster.nodes),
            faults=tuple(reports),
            steady_s=steady_s,
            seconds=time.monotonic() - self._began,
            sent=sum(each.sent for each in self._loads),
            given_up=dict(sum((each.given_up for each in self._loads), Counter())),
            account=account,
            wrong=tuple(load.wrong[:WRONG_MAX]),
            said=self._said() if self._ensemble is not None else {},
        )

    def _said(self) -> dict[str, int]:
        """Return how often all nodes say each of :data:`EVENTS`. They have stopped."""
        logs = [
            node.log_path.read_text(errors="replace")
            for node in self._cluster.nodes
            if node.log_path.exists()
        ]
        return {name: sum(log.count(words) for log in logs) for name, words in EVENTS.items()}

    def _all(self, faults: Iterable[Fault | Wave], reports: list[FaultReport]) -> None:
        for fault in faults:
            try:
                reports.append(self._wave(fault) if isinstance(fault, Wave) else self._one(fault))
            except (NodeError, ClusterError, NoSessionError) as error:
                self._load.wrong.append(f"{fault.name}: {error}")
                return
            self._say(_line(reports[-1]))

    def _one(self, fault: Fault) -> FaultReport:
        notes = []
        if refused := self._observer.elect_preferred(self._settings.partitions):
            notes.append(f"preferred leaders were not elected: {refused}")
        time.sleep(self._settings.settle_s)
        now = self._observer.leadership()
        if self._ensemble is not None:
            now = attrs.evolve(now, servers=self._ensemble.ids)
        try:
            targets = targets_of(fault, now)
        except NoTargetError as error:
            at = time.monotonic()
            return self._report(fault.name, (), now, (at, at, at, at), [*notes, f"left out: {error}"])
        nodes = list(map(self._node, targets))
        consumed = self._groups.consumed() if self._groups is not None else 0
        with self._leader_watch(targets, now) as watch:
            begin = time.monotonic()
            if fault.action == ROLLING:
                returned = self._roll(nodes, notes)
            elif fault.action == "stop" and min(targets) > ZOOKEEPER:
                returned = self._restart(nodes, notes)
            else:
                returned = self._hit(fault.action, nodes)
            back = time.monotonic()
            if min(targets) <= ZOOKEEPER:
                notes += self._while_away(fault, (begin, back), consumed)
            self._await_healed(returned, notes)
            healed = time.monotonic()
        self._check_tree(fault)
        if fault.action in SESSIONS and (offline := self._observer.await_led(self._settings.heal_s)):
            self._load.wrong.append(f"{fault.name}: without a leader: {', '.join(offline)}")
        time.sleep(self._settings.settle_s)
        end = time.monotonic()
        if not all(load.await_acks(end, self._settings.heal_s) for load in self._loads):
            notes.append(f"a partition takes no records: {self._observer.describe()}")
        spans = (begin, back, healed, end)
        return self._report(fault.name, targets, now, spans, notes, watch.named_s(begin))

    def _node(self, node_id: int) -> Node:
        if node_id <= ZOOKEEPER and self._ensemble is not None:
            return self._ensemble.servers[ZOOKEEPER - node_id]
        return self._cluster.node(node_id)

    def _while_away(self, fault: Fault, span: tuple[float, float], consumed: int) -> Sequence[str]:
        """Check that produce and fetch went on without ZooKeeper, and say how.

        :param consumed: the records that the groups had before
        """
        began, ended = span
        gap_s = max(gap_of(times, began, ended).longest_s for times in self._load.ack_times)
        if gap_s > (ended - began) / 2:
            self._load.wrong.append(f"{fault.name}: no acknowledgement for {gap_s:.1f} s without ZooKeeper")
        if self._groups is None:
            return [f"longest gap without ZooKeeper {gap_s:.2f} s"]
        if (more := self._groups.consumed() - consumed) == 0:
            self._load.wrong.append(f"{fault.name}: nothing was consumed without ZooKeeper")
        return [f"longest gap without ZooKeeper {gap_s:.2f} s, {more} records consumed"]

    def _check_tree(self, fault: Fault) -> None:
        """Look for what a former controller wrote. One that is paused longer than its session wakes up as such."""
        if self._ensemble is not None:
            try:
                stale = self._ensemble.tree.writes_of_former_controllers()
            except GONE as error:
                stale = [f"the tree can't be read: {error!r}"]
            self._load.wrong.extend(f"{fault.name}: {said}" for said in stale)

    def _report(
        self,
        name: str,
        hit: Sequence[int],
        now: Leadership,
        spans: tuple[float, float, float, float],
        notes: Sequence[str],
        named_s: tuple[float | None, ...] = (),
    ) -> FaultReport:
        """Return the report of a fault; its spans are the instants when it began, was undone, was healed, and ended."""
        begin, back, healed, end = spans
        return FaultReport(
            fault=name,
            nodes=tuple(hit),
            led=tuple(map(now.led_by, hit)),
            controller=now.controller,
            at_s=begin - self._began,
            down_s=back - begin,
            in_sync_s=healed - back,
            gaps=self._gaps(begin, end) if hit else (),
            named_s=named_s,
            notes=tuple(notes),
        )

    def _leader_watch(self, targets: Sequence[int], now: Leadership) -> LeaderWatch:
        """Return a watch of the brokers that are not hit; of none where no partition loses its leader."""
        others = [node for node in self._cluster.brokers if node.place.id not in targets]
        return LeaderWatch(others if any(map(now.led_by, targets)) else (), TOPIC, targets)

    def _wave(self, wave: Wave) -> FaultReport:
        """Let all blows of a wave fall and end; then the cluster has a minute to be whole, and each group to be at
        work.
        """
        load, notes = self._load, list[str]()
        now = self._observer.leadership()
        begin = time.monotonic()
        for at_s, begins, blow in wave.steps():
            time.sleep(max(0.0, begin + at_s - time.monotonic()))
            nodes = [self._cluster.node(node) for node in blow.nodes]
            if begins:
                self._harm.begin(blow.action, nodes)
            else:
                notes += self._harm.end(blow.action, nodes)
        for node in self._cluster.nodes:
            if not node.is_up:
                ended = f"node {node.place.id} had ended by itself: {node.printed()[-ENDED_CHARS:]}"
                (notes if node.place.id in wave.filled else load.wrong).append(ended)
                node.launch()
        back, returned = time.monotonic(), time.time()
        if not self._observer.await_whole(self._settings.heal_s, returned):
            load.wrong.append(
                f"{wave.name}: not in sync {self._settings.heal_s:.0f} s later: {self._observer.describe(returned)}"
            )
        healed = time.monotonic()
        if offline := self._observer.await_led(back + self._settings.heal_s - healed):
            load.wrong.append(
                f"{wave.name}: without a leader {self._settings.heal_s:.0f} s later: {', '.join(offline)}"
            )
        if self._groups is not None:
            took = self._groups.await_owned(OWNED_S)
            notes.append(", ".join(f"{name} group {seconds:.1f} s" for name, seconds in took.items()))
            if max(took.values()) >= OWNED_S:
                load.wrong.append(f"{wave.name}: partitions without an owner: {self._groups.describe()}")
        time.sleep(self._settings.settle_s)
        end = time.monotonic()
        if not load.await_acks(end, self._settings.heal_s):
            notes.append(f"a partition takes no records: {self._observer.describe()}")
        return self._report(wave.name, wave.nodes, now, (begin, back, healed, end), notes)

    # Each of the next three returns the instant (time.time) before which its last node was away for certain.

    def _hit(self, action: str, nodes: Sequence[Node]) -> float:
        """Do it to all nodes at once, and undo it after the down time."""
        self._harm.begin(action, nodes)
        all_away = self._ensemble is not None and len(nodes) == len(self._ensemble.servers)
        if all_away and nodes[0].place.id <= ZOOKEEPER:
            time.sleep(self._settings.zookeeper_down_s)
        elif action != "expire":
            time.sleep(self._settings.down_s)
        returned = time.time()
        self._harm.end(action, nodes)
        for node in nodes:
            node.await_ready()
        return returned

    def _roll(self, nodes: Sequence[Node], notes: list[str]) -> float:
        """Restart one node after the other. The next one follows when the cluster has healed."""
        returned = 0.0
        for node in nodes:
            if returned:
                self._await_healed(returned, notes)
            returned = self._restart([node], notes)
        return returned

    def _restart(self, nodes: Sequence[Node], notes: list[str]) -> float:
        """Stop all nodes at once; start them when the last one has ended."""
        began_s = time.monotonic()
        for node in nodes:
            node.terminate()
        notes += (
            f"node {node.place.id} did not end within its time and was killed"
            for node in nodes
            if not node.await_end(max(0.0, began_s + STOP_TIMEOUT_S - time.monotonic()))
        )
        names = " and ".join(f"node {node.place.id}" for node in nodes)
        notes.append(f"{names} took {time.monotonic() - began_s:.1f} s to stop")
        returned = time.time()
        for node in nodes:
            node.launch()
        for node in nodes:
            node.await_ready()
        return returned

    def _await_healed(self, returned: float, notes: list[str]) -> None:
        if not self._observer.await_whole(self._settings.heal_s, returned):
            why = self._observer.describe(returned)
            notes.append(f"not in sync after {self._settings.heal_s:.0f} s: {why}")

    def _gaps(self, begin: float, end: float) -> tuple[Gap, ...]:
        return tuple(gap_of(times, begin, end) for times in self._load.ack_times)


def _line(report: FaultReport) -> str:
    recovered = "" if report.recovered else " AND NOT RECOVERED"
    where = "+".join(map(str, report.nodes)) or "no node"
    notes = "; ".join(report.notes)
    named = f", leaders named after {report.named_everywhere_s:.2f} s" if report.named_s else ""
    return f"{report.at_s:6.0f} s  {report.fault} on {where}: {report.longest_s:.2f} s{recovered}{named}  {notes}"
