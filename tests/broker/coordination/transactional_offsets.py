"""What an application does that consumes, transforms and produces in transactions: confluent-kafka, on any broker."""

from __future__ import annotations

from typing import Any

PARTITIONS = 4
TRANSACTION_TIMEOUT_MS = 900_000
WAIT_S = 30


def make_topics(address: str) -> None:
    """``in`` and ``out``, and something to read."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": address})
    for future in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in ("in", "out")]).values():
        future.result(timeout=WAIT_S)
    producer = Producer({"bootstrap.servers": address})
    for number in range(40 * PARTITIONS):
        producer.produce("in", value=b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(WAIT_S) == 0


class Application:
    """A transactional producer beside a consumer of ``in``. Its open transaction lives as long as it is held."""

    def __init__(self, address: str, group: str, *, member: bool = False) -> None:
        """``member``: it subscribes, and commits as a member of its group; else it is in none."""
        from confluent_kafka import Consumer, Producer

        self.consumer = Consumer(
            {
                "bootstrap.servers": address,
                "log_level": 0,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        if member:
            self.consumer.subscribe(["in"])
        self.producer = Producer(
            {
                "bootstrap.servers": address,
                "log_level": 0,
                "transactional.id": f"of-{group}",
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
            }
        )
        self.producer.init_transactions(WAIT_S)

    def pass_on(self, count: int) -> None:
        """Read so many records and write each to ``out``, with the offsets, in a transaction that stays open."""
        self.producer.begin_transaction()
        for _ in range(count):
            record = self.consumer.poll(WAIT_S)
            assert record is not None
            assert record.error() is None, record.error()
            partition = record.partition()
            assert partition is not None
            self.producer.produce("out", value=record.value(), partition=partition)
        positions = self.consumer.position(self.consumer.assignment())
        self._send([place for place in positions if place.offset >= 0])

    def claim(self, partition: int, offset: int) -> None:
        """Put an offset into a transaction that stays open; nothing was read."""
        from confluent_kafka import TopicPartition

        self.producer.begin_transaction()
        self.producer.produce("out", value=b"claimed", partition=partition)
        self._send([TopicPartition("in", partition, offset)])

    def _send(self, places: list[Any]) -> None:
        assert self.producer.flush(WAIT_S) == 0
        self.producer.send_offsets_to_transaction(places, self.consumer.consumer_group_metadata(), WAIT_S)

    def commit(self) -> None:
        """End the transaction."""
        self.producer.commit_transaction(WAIT_S)

    def abort(self) -> None:
        """End the transaction."""
        self.producer.abort_transaction(WAIT_S)

    def commit_plainly(self, partition: int, offset: int) -> None:
        """OffsetCommit."""
        from confluent_kafka import TopicPartition

        self.consumer.commit(offsets=[TopicPartition("in", partition, offset)], asynchronous=False)


def work(address: str) -> object:
    """Groups of every kind: hold what it gives until the broker is down, or their open transactions end."""
    make_topics(address)
    member = Application(address, "member", member=True)
    member.pass_on(30)
    member.commit()
    member.pass_on(20)
    member.abort()
    member.consumer.close()

    aborted = Application(address, "aborted")
    aborted.commit_plainly(0, 2)
    aborted.claim(0, 7)
    aborted.abort()
    aborted.claim(1, 9)
    aborted.abort()

    overtaken = Application(address, "overtaken")
    overtaken.claim(0, 11)
    overtaken.commit_plainly(0, 3)
    overtaken.commit()

    crossed = Application(address, "crossed")
    crossed.claim(0, 12)
    other = Application(address, "crossed-too")
    other.producer.begin_transaction()
    other.producer.produce("out", value=b"x", partition=1)
    assert other.producer.flush(WAIT_S) == 0
    from confluent_kafka import TopicPartition

    other.producer.send_offsets_to_transaction(
        [TopicPartition("in", 0, 13)], crossed.consumer.consumer_group_metadata(), WAIT_S
    )
    other.commit()
    crossed.commit()

    left = Application(address, "left")
    left.commit_plainly(2, 1)
    left.claim(2, 21)
    committing = Application(address, "left-first")
    committing.claim(3, 33)
    for one in (aborted, overtaken, crossed, other, left, committing):
        one.consumer.close()
    return left, committing
