"""Rounds: groups at work, a kill when it hurts, a restart on the same directory, and what must be true then."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from blumfeld.testing.process import BrokerProcess
from campaigns.group_kills.asking import PATIENCE_S, committed, epochs
from campaigns.group_kills.cast import PARTITIONS, TOPIC, Committing, Group, Producing, ends
from campaigns.group_kills.ledger import GroupLedger

KINDS = ("mid-commit", "mid-rebalance", "settled")
SETTINGS = (
    'config."group.initial.rebalance.delay.ms"=0',
    'config."group.consumer.min.heartbeat.interval.ms"=300',
    'config."group.consumer.heartbeat.interval.ms"=300',
    'config."offsets.topic.num.partitions"=4',
)
SERVE_S = (0.3, 1.2)
"""Commits go on so long before a kill, at least and at most."""
REBALANCE_S = 0.8
"""A kill in a rebalance comes within so long after a member came or went."""
MEMBERS = (2, 4)
"""A group has so many, at least and at most."""


class KillReport(msgspec.Struct):
    """What the rounds of one seed came to."""

    kills: dict[str, int]
    commits: int
    went_back: int
    consumed: int
    skipped: int
    doubled: int
    recovery_ms: float
    """Median, from the start of the process until every group answered what it has committed."""
    seconds: float
    wrong: list[str]


class GroupKilling:
    """Rounds on one data directory below ``folder``. Moments, joins and leaves are drawn from the seed."""

    def __init__(self, folder: Path, seed: int, rounds: int, rate: int) -> None:
        self._broker = BrokerProcess(folder, settings=SETTINGS)
        self._fate = random.Random(f"group-kills/{seed}")
        self._rounds = rounds
        self._ledger = GroupLedger()
        address = self._broker.address
        self._producing = Producing(address, rate, self._ledger.wrong)
        self._committing = Committing(address, self._ledger)
        self._groups = [
            Group("classic", "classic", ("confluent_member", "kafka_python_member"), address),
            Group("consumer", "consumer", ("confluent_member",), address),
        ]
        self._kills = dict.fromkeys(KINDS, 0)
        self._recoveries_ms: list[float] = []

    def run(self) -> KillReport:
        """All rounds; broker and members are gone when this returns."""
        began = time.monotonic()
        wrong = self._ledger.wrong
        consumed = 0
        try:
            self._begin()
            for number in range(self._rounds):
                self._round(KINDS[number % len(KINDS)])
            consumed = self._finish()
        finally:
            for group in self._groups:
                group.end()
                wrong += group.wrong
            self._broker.kill()
        printed = self._broker.log_path.read_text(errors="replace")
        if "Traceback" in printed:
            wrong.append(f"the broker's log has a traceback:\n{printed[printed.index('Traceback') :][:1500]}")
        return KillReport(
            kills={kind: count for kind, count in self._kills.items() if count},
            commits=self._ledger.commits,
            went_back=self._ledger.went_back,
            consumed=consumed,
            skipped=self._ledger.skipped,
            doubled=self._ledger.doubled,
            recovery_ms=statistics.median(self._recoveries_ms) if self._recoveries_ms else 0.0,
            seconds=time.monotonic() - began,
            wrong=wrong,
        )

    def _begin(self) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

        self._broker.start()
        admin = AdminClient({"bootstrap.servers": self._broker.address, "log_level": 0})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(timeout=PATIENCE_S)
        self._producing.start()
        self._committing.start()
        for group in self._groups:
            for _ in range(MEMBERS[0]):
                group.add()
        self._await_settled()

    def _round(self, kind: str) -> None:
        if kind == "mid-rebalance":
            self._come_or_go(self._fate.choice(self._groups))
            time.sleep(self._fate.uniform(0, REBALANCE_S))
        else:
            if kind == "settled":
                self._await_settled()
            time.sleep(self._fate.uniform(*SERVE_S))
        before = epochs(self._broker.address, "consumer") if kind == "settled" else None
        self._broker.kill()
        self._kills[kind] += 1
        time.sleep(0.2)  # what members were told before the kill arrives
        promised = self._promised()
        began = time.monotonic()
        self._broker.start()
        for name, least in promised.items():
            self._ledger.check_committed(name, least, committed(self._broker.address, name))
        self._recoveries_ms.append((time.monotonic() - began) * 1_000)
        if before is not None and before.state == "Stable":
            self._ledger.check_epochs("consumer", before, epochs(self._broker.address, "consumer"))
        for group in self._groups:
            group.replace_dead()

    def _promised(self) -> dict[str, dict[tuple[str, int], int]]:
        for group in self._groups:
            group.tell(self._ledger)
        names = [Committing.GROUP, *(group.name for group in self._groups)]
        return {name: self._ledger.promised(name) for name in names}

    def _come_or_go(self, group: Group) -> None:
        least, most = MEMBERS
        count = len(group.living)
        if count >= most or (count > least and self._fate.random() < 0.5):
            group.leave()
        else:
            group.add()

    def _await_settled(self) -> None:
        """Every partition has its owner in both groups."""
        everything = {(TOPIC, at) for at in range(PARTITIONS)}
        self._await(lambda: all(group.owned() == everything for group in self._groups), "groups don't settle")

    def _await(self, settled: Callable[[], bool], complaint: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not settled():
            if time.monotonic() > deadline:
                self._ledger.wrong.append(complaint)
                return
            time.sleep(0.05)

    def _finish(self) -> int:
        """Let everything come to rest; how many records there were for each group."""
        for group in self._groups:
            group.replace_dead()
        self._producing.stop()
        self._committing.stop()
        last = ends(self._broker.address)

        def all_committed() -> bool:
            self._promised()
            return all(self._ledger.promised(group.name) == last for group in self._groups)

        self._await(all_committed, "a group doesn't get to the end")
        for group in self._groups:
            self._ledger.check_consumed(group.name, group.runs(), last)
        for name, least in self._promised().items():
            self._ledger.check_committed(name, least, committed(self._broker.address, name))
        return sum(last.values())
