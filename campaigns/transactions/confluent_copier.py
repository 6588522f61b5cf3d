"""librdkafka copies a topic in transactions: ``python -m campaigns.transactions.confluent_copier``, spec on stdin."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from campaigns.clients.load.producers import LIBRDKAFKA
from campaigns.transactions.copier_process import (
    FAILED_STATUS,
    FENCED_STATUS,
    HEADERS,
    Copier,
    one_line,
    patiently,
)

CALL_S = 10.0
"""Longest wait of one call of the transactional API; it is called again then."""
RECOVERY = "none"
"""``metadata.recovery.strategy``. With the default ``rebootstrap`` librdkafka 2.16 drops its brokers when all of them
are down. A TxnOffsetCommit that it gives to such a broker afterwards is never sent and never fails, so that
``send_offsets_to_transaction`` times out for ever."""
FENCES = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
"""Codes that say that a successor has begun. Any call may raise them: a Produce that was under way brings the news."""


def _error(error: Exception) -> KafkaError | None:
    return error.args[0] if isinstance(error, KafkaException) else None


def _retriable(error: Exception) -> bool:
    known = _error(error)
    return known is not None and known.retriable()


class ConfluentCopier:
    """Consumes in a group, and sends the group's offsets with each transaction (KIP-447)."""

    def __init__(self, copier: Copier) -> None:
        spec = copier.spec
        self._copier = copier
        self._spec = spec
        self._producer = Producer(
            {
                **LIBRDKAFKA,
                "metadata.recovery.strategy": RECOVERY,
                "bootstrap.servers": spec["bootstrap"],
                "transactional.id": spec["transactionalId"],
                "transaction.timeout.ms": spec["transactionTimeout"],
                "linger.ms": 2,
            }
        )
        self._consumer = Consumer(
            {
                **LIBRDKAFKA,
                "metadata.recovery.strategy": RECOVERY,
                "bootstrap.servers": spec["bootstrap"],
                "group.id": spec["group"],
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": spec["sessionTimeout"],
                "heartbeat.interval.ms": 300,
                "topic.metadata.refresh.interval.ms": 1000,
                "fetch.wait.max.ms": 100,
            }
        )

    def run(self) -> None:
        """Copy until stdin ends.

        :raises KafkaException: an error that is fatal to the producer, one of :data:`FENCES` for instance
        """
        self._call(lambda: self._producer.init_transactions(CALL_S))
        self._consumer.subscribe([self._spec["topic"]])
        self._copier.say("ready")
        while self._copier.goes_on:
            got = [
                record
                for record in self._consumer.consume(self._spec["batchRecords"], 0.2)
                if not record.error()
            ]
            self._copier.holds(len(self._consumer.assignment()))
            if got:
                self._copy(got)
        self._consumer.close()
        self._copier.say("ended")

    def _copy(self, got: list[Any]) -> None:
        doomed = self._copier.dooms()
        places: list[tuple[int, int]] = []
        failed: list[str] = []

        def delivered(error: KafkaError | None, message: Any) -> None:
            if error is None:
                places.append((message.partition(), message.offset()))
            else:
                failed.append(str(error))

        try:
            self._call(self._producer.begin_transaction)
            self._copier.say("began", len(got))
            for record in got:
                self._send(record, doomed, delivered)
            time.sleep(self._copier.pause_s())
            if doomed:
                self._producer.flush(CALL_S)
                self._call(lambda: self._producer.abort_transaction(CALL_S))
            else:
                self._commit(got)
        except KafkaException as error:
            self._abort(error)
            return
        if doomed:
            self._copier.aborted(places)
            self._rewind()
        else:
            self._copier.say("committed", len(got))

    def _send(self, record: Any, doomed: bool, delivered: Callable[..., None]) -> None:
        while True:
            try:
                self._producer.produce(
                    self._spec["output"],
                    record.value(),
                    record.key(),
                    record.partition(),
                    on_delivery=delivered,
                    headers=HEADERS if doomed else [],
                )
            except BufferError:
                self._producer.poll(0.05)
            else:
                return

    def _commit(self, got: list[Any]) -> None:
        ends = {record.partition(): record.offset() + 1 for record in got}
        offsets = [TopicPartition(self._spec["topic"], at, end) for at, end in ends.items()]
        member = self._consumer.consumer_group_metadata()
        self._call(lambda: self._producer.send_offsets_to_transaction(offsets, member, CALL_S))
        self._call(lambda: self._producer.commit_transaction(CALL_S))

    def _abort(self, error: KafkaException) -> None:
        """Abort after an error that allows it, and go back to what the group has committed."""
        known = _error(error)
        if known is None or known.code() in FENCES or not known.txn_requires_abort():
            raise error
        self._call(lambda: self._producer.abort_transaction(CALL_S))
        self._copier.say("retried", one_line(error))
        self._rewind()

    def _rewind(self) -> None:
        mine = self._consumer.assignment()
        if not mine:
            return
        try:
            committed = patiently(lambda: self._consumer.committed(mine, CALL_S), _retriable)
            for position in committed:
                self._consumer.seek(
                    TopicPartition(position.topic, position.partition, max(position.offset, 0))
                )
        except KafkaException as error:
            # The partitions are another member's now. A new assignment begins at the committed offsets.
            self._copier.say("retried", one_line(error))
            self._consumer.unsubscribe()
            self._consumer.subscribe([self._spec["topic"]])

    def _once(self, call: Callable[[], Any]) -> None:
        # librdkafka 2.16 may never return from send_offsets_to_transaction when the group's coordinator has died.
        with self._copier.bounded("a call of the transactional API"):
            call()

    def _call(self, call: Callable[[], Any]) -> None:
        patiently(lambda: self._once(call), _retriable)


def main() -> int:
    """Return 0 at the end of stdin, :data:`FENCED_STATUS` or :data:`FAILED_STATUS` else."""
    copier = Copier()
    try:
        ConfluentCopier(copier).run()
    except KafkaException as error:
        known = _error(error)
        if known is not None and known.code() in FENCES:
            copier.say("fenced", one_line(error))
            return FENCED_STATUS
        copier.say("failed", one_line(error))
        return FAILED_STATUS
    return 0


if __name__ == "__main__":
    sys.exit(main())
