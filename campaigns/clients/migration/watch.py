"""Beside the members: who keeps producing, and who looks at the group from outside."""

from __future__ import annotations

import threading
import time
from typing import Any

from blumfeld.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from blumfeld.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from campaigns.clients.live_members import Commitment, TopicPartition
from campaigns.raw_connection import ConnectionEnded, RawConnection

LOOK_S = 0.1


class SteadyProducer(threading.Thread):
    """The same number of records a second into each partition, until :meth:`finish`."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, records_per_s: float) -> None:
        super().__init__(daemon=True)
        self.ends: dict[TopicPartition, int] = {(topic, n): 0 for n in range(partitions)}
        """By partition: the offset behind the last record that was acknowledged."""
        self.failed: list[str] = []
        self._pause_s = 1 / records_per_s
        self._done = threading.Event()
        self._address = bootstrap

    def run(self) -> None:
        """Produce."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self._address, "linger.ms": 5, "acks": "all"})
        number = 0
        while not self._done.wait(self._pause_s):
            for topic, partition in self.ends:
                producer.produce(topic, b"%d" % number, partition=partition, on_delivery=self._report)
            number += 1
            producer.poll(0)
        if left := producer.flush(20):
            self.failed.append(f"{left} records were not delivered")

    def finish(self) -> dict[TopicPartition, int]:
        """Stop; the end of each partition."""
        self._done.set()
        self.join()
        return self.ends

    def _report(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failed.append(str(error))
        else:
            self.ends[message.topic(), message.partition()] = message.offset() + 1


class Onlooker(threading.Thread):
    """Ten times a second: the group's type, and what is committed of each partition."""

    def __init__(self, bootstrap: str, group: str, topic: str, partitions: int) -> None:
        super().__init__(daemon=True)
        self.commitments: list[Commitment] = []
        self.types: list[tuple[int, str]] = []
        """(time, type) at each change."""
        self.lost: str | None = None
        """Why it looks no more; None while it does."""
        self._address, self._group, self._topic = bootstrap, group, topic
        self._partitions = list(range(partitions))
        self._done = threading.Event()

    def run(self) -> None:
        """Look."""
        try:
            with RawConnection(self._address) as raw:
                while not self._done.wait(LOOK_S):
                    self._look(raw)
        except (OSError, ConnectionEnded) as error:
            self.lost = f"{type(error).__name__}: {error}"

    def finish(self) -> None:
        """Stop looking."""
        self._done.set()
        self.join()

    def committed(self) -> dict[TopicPartition, int]:
        """What was there at the last look."""
        return {c.at: c.offset for c in list(self.commitments)}

    def _look(self, raw: RawConnection) -> None:
        asked_ms = int(time.time() * 1000)
        topics = [OffsetFetchRequestTopics(name=self._topic, partition_indexes=self._partitions)]
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=self._group, topics=topics)])
        (answered,) = raw.ask(request, 9, OffsetFetchResponse).groups
        for topic in answered.topics:
            self.commitments += [
                Commitment((topic.name, p.partition_index), p.committed_offset, asked_ms)
                for p in topic.partitions
                if p.committed_offset >= 0
            ]
        listed = raw.ask(ListGroupsRequest(), 5, ListGroupsResponse).groups
        kind = next((g.group_type.lower() for g in listed if g.group_id == self._group), "")
        if not self.types or self.types[-1][1] != kind:
            self.types.append((asked_ms, kind))
