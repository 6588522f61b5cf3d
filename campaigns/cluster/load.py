"""The load on the cluster: a producer, the ledger of its acknowledgements, and the reader of all records."""

from __future__ import annotations

import time
from array import array
from collections import Counter
from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from campaigns.cluster.producers import FINISH_S, LIBRDKAFKA, Make
from campaigns.crash.records import Account, RecordLedger

TOPIC = "cluster-faults"
WAIT_S = 60.0
READ_S = 180.0
"""Longest time for the reading of all partitions."""


class NoLoadError(Exception):
    """The cluster can't be put under load; the message says why."""


class UnreadableError(Exception):
    """A partition could not be read to its end; the message says how far."""


class Load:
    """A producer and what it was told. Every record of a partition has a number, from 0 on."""

    def __init__(self, bootstrap: str, partitions: int, rate_per_s: float, make_producer: Make) -> None:
        self.ledger = RecordLedger(partitions)
        self.ack_times = [array("d") for _ in range(partitions)]
        """Instants of all acknowledgements (time.monotonic), by partition."""
        self.given_up: Counter[str] = Counter()
        """Records that the producer failed to deliver, by error. They may be in the log or not."""
        self._config = {**LIBRDKAFKA, "bootstrap.servers": bootstrap}
        self._producer = make_producer(bootstrap, TOPIC, partitions, rate_per_s)

    @property
    def wrong(self) -> list[str]:
        """What broke a promise, in words."""
        return self.ledger.wrong

    @property
    def sent(self) -> int:
        """Number of records that were sent; known at the end."""
        return sum(self._producer.sent)

    def acknowledged(self, partition: int, number: int, offset: int) -> None:
        """See :class:`campaigns.cluster.producers.Watcher`."""
        self.ledger.ack(partition, number, offset)
        self.ack_times[partition].append(time.monotonic())

    def refused(self, error: str) -> None:
        """See :class:`campaigns.cluster.producers.Watcher`."""
        self.given_up[error] += 1

    def failed(self, error: str) -> None:
        """See :class:`campaigns.cluster.producers.Watcher`."""
        self.wrong.append(f"the producer failed: {error}")

    def make_topic(self, replication_factor: int, config: Mapping[str, str]) -> None:
        """Create the topic of the load.

        :raises NoLoadError: it was refused
        """
        topic = NewTopic(TOPIC, len(self.ack_times), replication_factor, config=dict(config))
        admin = AdminClient(self._config)  # its answers come only while it lives
        try:
            admin.create_topics([topic], request_timeout=WAIT_S)[TOPIC].result(timeout=WAIT_S)
        except (KafkaException, TimeoutError) as error:
            raise NoLoadError(f"the topic was not created: {error or type(error).__name__}") from error

    def start(self) -> None:
        """Begin; every partition has had an acknowledgement when this returns.

        :raises NoLoadError: one had none within a minute
        """
        self._producer.start(self)
        deadline = time.monotonic() + WAIT_S
        while not all(self.ack_times):
            if time.monotonic() > deadline or not self._producer.is_alive:
                counts = [len(times) for times in self.ack_times]
                why = self.wrong or dict(self.given_up)
                raise NoLoadError(f"records acknowledged by partition: {counts}; {why}")
            time.sleep(0.01)

    def await_acks(self, since: float, timeout_s: float) -> bool:
        """Wait until each partition had an acknowledgement after ``since``; return whether it came in time."""
        deadline = time.monotonic() + timeout_s
        while not all(times and times[-1] > since for times in self.ack_times):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        return True

    def finish(self, wait_s: float = FINISH_S) -> None:
        """Send nothing new, and wait for open acknowledgements, for ``wait_s`` at most."""
        self._producer.finish(wait_s)
        if self._producer.is_alive:
            self.wrong.append("the producer did not come to an end")

    def ends(self) -> dict[tuple[str, int], int]:
        """Return the end of each partition.

        :raises UnreadableError: a leader doesn't say it in time
        """
        reader = Consumer({**self._config, "group.id": "cluster-ends"})
        try:
            found = {}
            for partition in range(len(self.ack_times)):
                low_and_high = reader.get_watermark_offsets(TopicPartition(TOPIC, partition), timeout=WAIT_S)
                found[TOPIC, partition] = low_and_high[1]
            return found
        except KafkaException as error:
            raise UnreadableError(f"the ends of the partitions: {error}") from error
        finally:
            reader.close()

    def account(self) -> Account:
        """Read every partition and compare it with the ledger. One that can't be read is said to be so, and no record
        of it counts as lost.
        """
        account = Account()
        deadline = time.monotonic() + READ_S
        for partition in range(len(self.ack_times)):
            try:
                self.ledger.check(partition, self._read(partition, deadline), account)
            except UnreadableError as error:
                account.acked += len(self.ledger.acked[partition])
                self.wrong.append(str(error))
        return account

    def _read(self, partition: int, deadline: float) -> list[tuple[int, int]]:
        """Return (offset, number) of every record of a partition, up to its end.

        :raises UnreadableError: the end was not reached by then
        """
        reader = Consumer(
            {
                **self._config,
                "group.id": "cluster-audit",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            }
        )
        reader.assign([TopicPartition(TOPIC, partition, 0)])
        found: list[tuple[int, int]] = []
        last = ""
        try:
            while time.monotonic() < deadline:
                for message in reader.consume(1000, timeout=0.5):
                    error, offset = message.error(), message.offset()
                    if error is not None and error.code() == KafkaError._PARTITION_EOF:
                        return found
                    if error is not None:
                        last = f": {error}"
                    elif offset is not None:
                        found.append((offset, int((message.value() or b"").split()[0])))
        finally:
            reader.close()
        raise UnreadableError(
            f"partition {partition}: {len(found)} records could be read, and then not its end{last}"
        )
