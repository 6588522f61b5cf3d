"""The load on a broker or a cluster: a producer, what it was told, and the account of all records at the end."""

from __future__ import annotations

import time
from array import array
from collections import Counter
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from campaigns.clients.load.acknowledged_records import Account, AcknowledgedRecords
from campaigns.clients.load.log_contents import UnreadableError, log_ends, read_partition
from campaigns.clients.load.producers import FINISH_S, LIBRDKAFKA, Librdkafka, Make
from campaigns.waits import await_true

TOPIC = "load"
WAIT_S = 60.0


class NoLoadError(Exception):
    """The cluster can't be put under load; the message says why."""


class Load:
    """A producer and what it was told. Every record of a partition has a number, from 0 on."""

    def __init__(
        self,
        bootstrap: str,
        partitions: int,
        rate_per_s: float,
        topic: str = TOPIC,
        make_producer: Make = Librdkafka,
    ) -> None:
        self.login: Mapping[str, Any] = {}
        """Settings of librdkafka by which the readers of the account log in."""
        self.acknowledged_records = AcknowledgedRecords(partitions)
        self.wrong = self.acknowledged_records.wrong
        """Broken promises, in words."""
        self.ack_times = [array("d") for _ in range(partitions)]
        """Instants of all acknowledgements (time.monotonic), by partition."""
        self.given_up: Counter[str] = Counter()
        """Records that the producer failed to deliver, by error. They may be in the log or not."""
        self.bootstrap = bootstrap
        """Where the account is read."""
        self._topic = topic
        self._producer = make_producer(bootstrap, topic, partitions, rate_per_s)

    @property
    def sent(self) -> int:
        """Number of records that were sent."""
        return sum(self._producer.sent)

    def acknowledged(self, partition: int, number: int, offset: int) -> None:
        """See :class:`campaigns.clients.load.producers.Watcher`."""
        self.acknowledged_records.ack(partition, number, offset)
        self.ack_times[partition].append(time.monotonic())

    def refused(self, error: str) -> None:
        """See :class:`campaigns.clients.load.producers.Watcher`."""
        self.given_up[error] += 1

    def failed(self, error: str) -> None:
        """See :class:`campaigns.clients.load.producers.Watcher`."""
        self.wrong.append(f"the producer failed: {error}")

    def make_topic(self, replication_factor: int, config: Mapping[str, str]) -> None:
        """Create the topic of the load.

        :raises NoLoadError: it was refused
        """
        topic = NewTopic(self._topic, len(self.ack_times), replication_factor, config=dict(config))
        # The answers of an admin client come only while it lives.
        admin = AdminClient({**LIBRDKAFKA, "bootstrap.servers": self.bootstrap})
        try:
            admin.create_topics([topic], request_timeout=WAIT_S)[self._topic].result(timeout=WAIT_S)
        except (KafkaException, TimeoutError) as error:
            raise NoLoadError(f"the topic was not created: {error or type(error).__name__}") from error

    def start(self) -> None:
        """Begin; every partition has had an acknowledgement when this returns.

        :raises NoLoadError: one had none within a minute
        """
        self._producer.start(self)
        await_true(lambda: all(self.ack_times) or not self._producer.is_alive, WAIT_S)
        if not all(self.ack_times):
            counts = [len(times) for times in self.ack_times]
            raise NoLoadError(
                f"records acknowledged by partition: {counts}; {self.wrong or dict(self.given_up)}"
            )

    def await_acks(self, since: float, timeout_s: float) -> bool:
        """Wait until each partition had an acknowledgement after ``since``; return whether it came in time."""
        return await_true(lambda: all(times and times[-1] > since for times in self.ack_times), timeout_s)

    def finish(self, wait_s: float = FINISH_S) -> None:
        """Send nothing new, and wait for open acknowledgements, for ``wait_s`` at most."""
        self._producer.finish(wait_s)
        if self._producer.is_alive:
            self.wrong.append("the producer did not come to an end")

    def ends(self) -> dict[tuple[str, int], int]:
        """Return the end of each partition.

        :raises UnreadableError: a leader doesn't say it in time
        """
        return log_ends(self.bootstrap, self._topic, len(self.ack_times), self.login)

    def account(self) -> Account:
        """Read every partition and compare it with what was acknowledged. One that can't be read is said to be so, and
        no record of it counts as lost.
        """
        account = Account()
        for partition in range(len(self.ack_times)):
            try:
                self.acknowledged_records.check(partition, self._numbers(partition), account)
            except UnreadableError as error:
                account.acked += len(self.acknowledged_records.offsets[partition])
                self.wrong.append(str(error))
        return account

    def _numbers(self, partition: int) -> list[tuple[int, int]]:
        """Return (offset, number) of every record of a partition."""
        return [
            (message.offset() or 0, int((message.value() or b"").split()[0]))
            for message in read_partition(self.bootstrap, self._topic, partition, login=self.login)
        ]
