"""One contender: its cluster is started, put under load and hit by one fault after the other; then the account."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

import attrs

from campaigns.cluster.contenders import Contender
from campaigns.cluster.faults import ROLLING, Fault, Leadership, NoTargetError, targets_of
from campaigns.cluster.gaps import Gap, gap_of
from campaigns.cluster.load import TOPIC, Load
from campaigns.cluster.nodes import STOP_S, Cluster, Node, NodeError
from campaigns.cluster.producers import Librdkafka, Make
from campaigns.cluster.report import ContenderReport, FaultReport
from campaigns.cluster.watching import Observer

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
    steady_s: float = 10.0
    """Load before the first fault."""
    settle_s: float = 3.0
    """Load after the replicas are in sync again, and once more after the election of preferred leaders."""
    heal_s: float = 60.0
    """Longest wait until all replicas are in sync again."""


class Wires(Protocol):
    """The network between the nodes."""

    def cut(self, node: int) -> None:
        """Drop every packet from and to a node."""
        ...

    def heal(self, node: int) -> None:
        """Let them through again."""
        ...


class Run:
    """A run of one contender. The caller stops the cluster."""

    def __init__(
        self,
        contender: Contender,
        cluster: Cluster,
        settings: Settings,
        wires: Wires | None,
        say: Callable[[str], None],
        make_producer: Make = Librdkafka,
    ) -> None:
        self._contender = contender
        self._cluster = cluster
        self._settings = settings
        self._wires = wires
        self._say = say
        self._load = Load(cluster.addresses, settings.partitions, settings.rate_per_s, make_producer)
        self._observer = Observer(cluster, TOPIC)
        self._began = 0.0

    def run(self, faults: Sequence[Fault]) -> ContenderReport:
        """Run all faults. A node that does not come back ends the run; the account is made all the same.

        :raises NodeError: the cluster did not start
        :raises NoLoadError: it takes no topic, or no records
        """
        settings, load = self._settings, self._load
        self._cluster.start()
        load.make_topic(len(self._cluster.brokers), {"min.insync.replicas": str(settings.in_sync_min)})
        if not self._observer.await_whole(settings.heal_s):
            load.wrong.append(f"the new topic is not in sync: {self._observer.describe()}")
        load.start()
        self._began = time.monotonic()
        time.sleep(settings.steady_s)
        steady_s = max(gap.longest_s for gap in self._gaps(self._began, time.monotonic()))
        reports: list[FaultReport] = []
        for fault in faults:
            try:
                reports.append(self._one(fault))
            except NodeError as error:
                load.wrong.append(f"{fault.name}: {error}")
                break
            self._say(_line(reports[-1]))
        load.finish()
        account = load.account()
        return ContenderReport(
            contender=self._contender.name,
            commands=tuple(node.command for node in self._cluster.nodes),
            faults=tuple(reports),
            steady_s=steady_s,
            seconds=time.monotonic() - self._began,
            sent=load.sent,
            given_up=dict(load.given_up),
            account=account,
            wrong=tuple(load.wrong[:WRONG_MAX]),
        )

    def _one(self, fault: Fault) -> FaultReport:
        notes = []
        if refused := self._observer.elect_preferred(self._settings.partitions):
            notes.append(f"preferred leaders were not elected: {refused}")
        time.sleep(self._settings.settle_s)
        now = self._observer.leadership()
        try:
            targets = targets_of(fault, now)
        except NoTargetError as error:
            return self._left_out(fault, now, [*notes, f"left out: {error}"])
        nodes = [self._cluster.node(target) for target in targets]
        begin = time.monotonic()
        self._roll(nodes, notes) if fault.action == ROLLING else self._hit(fault.action, nodes, notes)
        back = time.monotonic()
        self._await_healed(notes)
        healed = time.monotonic()
        time.sleep(self._settings.settle_s)
        if not self._load.await_acks(healed, self._settings.heal_s):
            notes.append(f"a partition takes no records: {self._observer.describe()}")
        return FaultReport(
            fault=fault.name,
            nodes=targets,
            led=tuple(now.led_by(target) for target in targets),
            controller=now.controller,
            at_s=begin - self._began,
            down_s=back - begin,
            in_sync_s=healed - back,
            gaps=self._gaps(begin, time.monotonic()),
            notes=tuple(notes),
        )

    def _hit(self, action: str, nodes: Sequence[Node], notes: list[str]) -> None:
        """Do it to all nodes at once, and undo it after the down time."""
        if action == "stop":
            for node in nodes:
                self._restart(node, notes)
            return
        for node in nodes:
            self._away(action, node)
        time.sleep(self._settings.down_s)
        for node in nodes:
            self._back(action, node)
        for node in nodes:
            node.await_answer()

    def _away(self, action: str, node: Node) -> None:
        if action == "kill":
            node.kill()
        elif action == "pause":
            node.pause()
        else:
            assert self._wires is not None
            self._wires.cut(node.place.id)

    def _back(self, action: str, node: Node) -> None:
        if action == "kill":
            node.launch()
        elif action == "pause":
            node.resume()
        else:
            assert self._wires is not None
            self._wires.heal(node.place.id)

    def _roll(self, nodes: Sequence[Node], notes: list[str]) -> None:
        for node in nodes:
            self._restart(node, notes)
            self._await_healed(notes)

    def _restart(self, node: Node, notes: list[str]) -> None:
        asked = time.monotonic()
        node.terminate()
        if not node.await_end(STOP_S):
            notes.append(f"node {node.place.id} did not end within its time and was killed")
        notes.append(f"node {node.place.id} took {time.monotonic() - asked:.1f} s to stop")
        node.launch()
        node.await_answer()

    def _await_healed(self, notes: list[str]) -> None:
        if not self._observer.await_whole(self._settings.heal_s):
            notes.append(f"not in sync after {self._settings.heal_s:.0f} s: {self._observer.describe()}")

    def _gaps(self, begin: float, end: float) -> tuple[Gap, ...]:
        return tuple(gap_of(times, begin, end) for times in self._load.ack_times)

    def _left_out(self, fault: Fault, now: Leadership, notes: Sequence[str]) -> FaultReport:
        return FaultReport(
            fault=fault.name,
            nodes=(),
            led=(),
            controller=now.controller,
            at_s=time.monotonic() - self._began,
            down_s=0.0,
            in_sync_s=0.0,
            gaps=(),
            notes=tuple(notes),
        )


def _line(report: FaultReport) -> str:
    recovered = "" if report.recovered else " AND NOT RECOVERED"
    where = "+".join(map(str, report.nodes)) or "no node"
    notes = "; ".join(report.notes)
    return f"{report.at_s:6.0f} s  {report.fault} on {where}: {report.longest_s:.2f} s{recovered}  {notes}"
