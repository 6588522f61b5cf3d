"""Who is at work while a broker is killed: a producer, members of two groups, and one that does nothing but commit."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

from blumfeld.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from campaigns.clients.live_members import Member, MemberSpec, Protocol, member_module
from campaigns.clients.verdicts import CheckFailed
from campaigns.group_kills.asking import SOON
from campaigns.group_kills.ledger import GroupLedger, Place
from campaigns.raw_connection import ConnectionEnded, RawConnection

TOPIC = "group-kills"
PARTITIONS = 6
COMMIT_VERSION = 8
FLUSH_S = 60.0
GAVE_UP = ("KafkaConnectionError", "Unable to bootstrap")
"""What kafka-python says when it ends because there was no broker."""


class Worker:
    """A thread that works until it is told to stop; what escapes from it is found in ``wrong``."""

    def __init__(self, name: str, wrong: list[str]) -> None:
        self._done = threading.Event()
        self._wrong = wrong
        self._thread = threading.Thread(target=self._guarded, name=f"group-kills-{name}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, and wait for it."""
        self._done.set()
        self._thread.join(2 * FLUSH_S)
        if self._thread.is_alive():
            self._wrong.append(f"{self._thread.name} does not come to an end")

    def _guarded(self) -> None:
        try:
            self.work()
        except Exception as error:
            self._wrong.append(f"{self._thread.name}: {error!r}")

    def work(self) -> None:
        """Until ``_done`` is set."""
        raise NotImplementedError


class Producing(Worker):
    """An idempotent librdkafka producer at a steady rate, all partitions in turn."""

    def __init__(self, bootstrap: str, rate: int, wrong: list[str]) -> None:
        super().__init__("producer", wrong)
        self._bootstrap = bootstrap
        self._rate = rate

    def work(self) -> None:
        """Produce; at the end everything is acknowledged."""
        from confluent_kafka import Producer

        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        sent = 0
        began = time.monotonic()
        while not self._done.is_set():
            due = int((time.monotonic() - began) * self._rate)
            for number in range(sent, min(due, sent + 500)):
                producer.produce(TOPIC, b"%d" % number, partition=number % PARTITIONS)
                sent += 1
            producer.poll(0.01)
        if producer.flush(FLUSH_S):
            self._wrong.append("the producer's records were not all acknowledged")


class Committing(Worker):
    """A group without members that commits rising offsets of all partitions, one request after the other."""

    GROUP = "committer"

    def __init__(self, address: str, ledger: GroupLedger) -> None:
        super().__init__("committer", ledger.wrong)
        self._address = address
        self._ledger = ledger

    def work(self) -> None:
        """Commit; a request that isn't answered promises nothing."""
        offset = 0
        while not self._done.is_set():
            try:
                with RawConnection(self._address, 5.0) as connection:
                    while not self._done.is_set():
                        offset += 1
                        self._commit(connection, offset)
            except (OSError, ConnectionEnded):
                time.sleep(0.02)

    def _commit(self, connection: RawConnection, offset: int) -> None:
        partitions = [
            OffsetCommitRequestPartition(partition_index=at, committed_offset=offset)
            for at in range(PARTITIONS)
        ]
        request = OffsetCommitRequest(
            group_id=self.GROUP, topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=partitions)]
        )
        answer = connection.ask(request, COMMIT_VERSION, OffsetCommitResponse)
        for item in answer.topics[0].partitions:
            if not item.error_code:
                self._ledger.commit(self.GROUP, (TOPIC, item.partition_index), offset)
            elif item.error_code not in SOON:
                self._wrong.append(f"a commit was refused with {item.error_code}")


class Group:
    """A group of real clients. What members tell is kept also when they are gone."""

    def __init__(
        self, name: str, protocol: Protocol, modules: tuple[str, ...], bootstrap: str, topic: str = TOPIC
    ) -> None:
        """:param modules: the kinds of members, in turn"""
        self.name = name
        self.protocol = protocol
        self.living: list[Member] = []
        self.wrong: list[str] = []
        self._all: list[Member] = []
        self._modules = modules
        self._bootstrap = bootstrap
        self._topic = topic
        self._told: dict[Member, int] = {}
        self._leaving: list[threading.Thread] = []

    def add(self) -> None:
        """Start a member."""
        module = self._modules[len(self._all) % len(self._modules)]
        spec = MemberSpec(self._topic, self.name, self.protocol)
        command = [sys.executable, "-m", member_module(module)]
        member = Member(command, spec.to_json(self._bootstrap), f"{self.name}-{len(self._all)}")
        self.living.append(member)
        self._all.append(member)

    def leave(self) -> None:
        """The oldest member leaves in good order, in its own time."""
        leaving = threading.Thread(target=self._let_go, args=(self.living.pop(0),), daemon=True)
        leaving.start()
        self._leaving.append(leaving)

    def _let_go(self, member: Member) -> None:
        try:
            member.stop()
        except CheckFailed as error:
            self.wrong.append(str(error))

    def owned(self) -> set[Place]:
        """What living members have."""
        return {place for member in self.living for place in member.owned}

    def tell(self, ledger: GroupLedger) -> None:
        """Take in the commits that members were told of since the last call."""
        for member in self._all:
            commitments = member.story.commitments
            begun = self._told.get(member, 0)
            end = len(commitments)
            for commitment in commitments[begun:end]:
                ledger.commit(self.name, commitment.at, commitment.offset)
            self._told[member] = end

    def runs(self) -> dict[Place, list[tuple[int, int, int]]]:
        """(first, last, count) of what was consumed of each partition."""
        found: dict[Place, list[tuple[int, int, int]]] = {}
        for member in self._all:
            for run in list(member.story.consumptions):
                found.setdefault(run.at, []).append((run.first, run.last, run.count))
        return found

    def replace_dead(self) -> None:
        """New members for those that ended though nobody told them to. kafka-python does so when nobody answers for a
        while; any other end is wrong.
        """
        for member in [member for member in self.living if not member.alive]:
            self.living.remove(member)
            self.add()
            if not any(reason in member.errors() for reason in GAVE_UP):
                self.wrong.append(f"{member.name} ended: {member.errors()}")

    def end(self) -> None:
        """All members are gone."""
        for leaving in self._leaving:
            leaving.join(FLUSH_S)
        for member in self.living:
            member.kill()


def ends(bootstrap: str) -> dict[Place, int]:
    """Where the topic's partitions end."""
    from confluent_kafka import Consumer, TopicPartition

    config: dict[str, Any] = {"bootstrap.servers": bootstrap, "group.id": "group-kills-ends", "log_level": 0}
    reader = Consumer(config)
    try:
        return {
            (TOPIC, at): reader.get_watermark_offsets(TopicPartition(TOPIC, at), timeout=FLUSH_S)[1]
            for at in range(PARTITIONS)
        }
    finally:
        reader.close()
