"""Rounds: load and groups at work, a kill when it hurts, a restart on the same directory, and the account."""

from __future__ import annotations

import random
import statistics
import time
from functools import partial
from pathlib import Path

from blumfeld.testing.process import BrokerProcess
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from campaigns.clients.load.acknowledged_records import Account
from campaigns.clients.load.groups import Group, Groups
from campaigns.clients.load.load import TOPIC, Load
from campaigns.clients.load.producers import CUT_SHORT_S
from campaigns.clients.load.promises import Epochs, Place
from campaigns.coordinators import stable_offsets
from campaigns.group_kills import committer
from campaigns.group_kills.committer import Committer
from campaigns.group_kills.report import KillReport
from campaigns.raw_connection import RawConnection
from campaigns.waits import NoAnswerError, answer_of

PARTITIONS = 6
KINDS = ("mid-commit", "mid-rebalance", "settled", "starting", "stopping")
SETTINGS = (
    'config."group.initial.rebalance.delay.ms"=0',
    'config."group.consumer.min.heartbeat.interval.ms"=300',
    'config."group.consumer.heartbeat.interval.ms"=300',
    'config."offsets.topic.num.partitions"=4',
)
SERVE_S = (0.3, 1.2)
"""A broker serves so long before a kill, at least and at most."""
REBALANCE_S = 0.8
"""A kill in a rebalance comes within so long after a member came or went."""
START_S = 0.7
"""A kill of a broker that starts comes within this time."""
STOP_S = 0.15
"""A kill of a broker that was asked to stop comes within this time."""
SETTLE_S = 60.0
MEMBERS = (2, 4)
"""A group has so many, at least and at most."""


class Kills:
    """Rounds on one data directory below ``folder``. Moments, joins and leaves are drawn from the seed."""

    def __init__(
        self, folder: Path, seed: int, rounds: int, rate: int, storage: str = "storage_local"
    ) -> None:
        self._broker = BrokerProcess(folder, settings=(*SETTINGS, f"storage.plugin={storage}"))
        self._fate = random.Random(f"group-kills/{seed}")
        self._rounds = rounds
        address = self._broker.address
        self._load = Load(address, PARTITIONS, rate)
        self._groups = Groups(address, TOPIC, PARTITIONS)
        self._promises = self._groups.promises
        self._committer = Committer(address, TOPIC, PARTITIONS, self._promises)
        self._kills = dict.fromkeys(KINDS, 0)
        self._recoveries_ms: list[float] = []

    def run(self) -> KillReport:
        """All rounds; broker and clients are gone when this returns.

        :raises NodeError: the broker does not come back
        :raises NoLoadError: it takes no records
        """
        began = time.monotonic()
        account = Account()
        try:
            self._begin()
            for number in range(self._rounds):
                self._round(KINDS[number % len(KINDS)])
            account = self._finish()
        finally:
            self._load.finish(CUT_SHORT_S)
            self._groups.end()
            self._broker.kill()
        given_up = [f"{count} records were given up: {error}" for error, count in self._load.given_up.items()]
        return KillReport(
            kills={kind: count for kind, count in self._kills.items() if count},
            account=account,
            commits=self._promises.commits,
            went_back=self._promises.went_back,
            skipped=self._promises.skipped,
            again=self._promises.doubled,
            recovery_ms=statistics.median(self._recoveries_ms) if self._recoveries_ms else 0.0,
            seconds=time.monotonic() - began,
            wrong=[
                *self._load.wrong,
                *self._promises.wrong,
                *given_up,
                *filter(None, [self._broker.traceback()]),
            ],
        )

    def _begin(self) -> None:
        self._broker.start()
        self._load.make_topic(1, {})
        self._load.start()
        self._committer.start()
        self._groups.start()
        self._await_settled()

    def _round(self, kind: str) -> None:
        if kind == "mid-rebalance":
            self._come_or_go(self._fate.choice(self._groups.all))
            time.sleep(self._fate.uniform(0, REBALANCE_S))
        else:
            if kind == "settled":
                self._await_settled()
            time.sleep(self._fate.uniform(*SERVE_S))
        before = self._epochs() if kind == "settled" else None
        if kind == "stopping":
            self._broker.terminate()
            time.sleep(self._fate.uniform(0, STOP_S))
        self._broker.kill()
        if kind == "starting":
            self._broker.launch()
            time.sleep(self._fate.uniform(0, START_S))
            self._broker.kill()
        self._kills[kind] += 1
        time.sleep(0.2)  # what members were told before the kill arrives
        promised = self._promised()
        began = time.monotonic()
        self._broker.start()
        self._check_committed(promised)
        self._recoveries_ms.append((time.monotonic() - began) * 1_000)
        if before is not None and before.state == "Stable":
            self._promises.check_epochs("consumer", before, self._epochs())
        for group in self._groups.all:
            group.replace_dead()

    def _come_or_go(self, group: Group) -> None:
        least, most = MEMBERS
        count = len(group.living)
        if count >= most or (count > least and self._fate.random() < 0.5):
            group.leave()
        else:
            group.add()

    def _await_settled(self) -> None:
        """Wait until every partition has its owner in both groups."""
        if max(self._groups.await_owned(SETTLE_S).values()) >= SETTLE_S:
            self._promises.wrong.append(f"groups don't settle: {self._groups.describe()}")

    def _finish(self) -> Account:
        """Let everything come to rest; return what the log has of the acknowledged records."""
        self._load.finish()
        self._committer.stop()
        ends = self._load.ends()
        self._groups.finish(ends)
        self._check_committed(self._promised(), ends)
        return self._load.account()

    def _promised(self) -> dict[str, dict[Place, int]]:
        members: dict[str, dict[Place, int]] = {group.name: group.promised() for group in self._groups.all}
        return {committer.GROUP: self._promises.promised(committer.GROUP), **members}

    def _check_committed(
        self, promised: dict[str, dict[Place, int]], ends: dict[Place, int] | None = None
    ) -> None:
        for group, least in promised.items():
            offsets = answer_of(partial(stable_offsets, self._broker.address, group))
            # The committer commits what it likes.
            self._promises.check_committed(group, least, offsets, None if group == committer.GROUP else ends)

    def _epochs(self) -> Epochs:
        """Return the KIP-848 group as its coordinator describes it."""

        def ask() -> Epochs:
            request = ConsumerGroupDescribeRequest(group_ids=["consumer"])
            with RawConnection(self._broker.address) as connection:
                described = connection.ask(request, 1, ConsumerGroupDescribeResponse).groups[0]
            if described.error_code:
                raise NoAnswerError(ErrorCode(described.error_code).name)
            members = {member.member_id: member.member_epoch for member in described.members}
            return Epochs(described.group_state, described.group_epoch, members)

        return answer_of(ask)
