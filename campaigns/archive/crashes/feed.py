"""Producers that feed a topic while brokers and archives are killed, and know which messages must be archived."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from typing import Any

from blumfeld.feeds.binance import MadeFeed, Message
from campaigns.archive.common.expected_tallies import Tallies, added, expected_at
from campaigns.archive.common.topics import PRODUCER, send

FLUSH_S = 120.0
SYMBOLS = ("BTCUSDT", "ETHUSDT", "SOLUSDT", "XRPUSDT")
TRANSACTION = (20, 150)
"""Least and greatest number of messages in a transaction."""
ABORTED = 0.3
"""Share of the transactions that are aborted on purpose."""
CALL_S = 10.0


class Feed:
    """An idempotent producer that sends at a steady rate from a thread. Each partition has a symbol and a made feed."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, rate: int, seed: int) -> None:
        self.wrong: list[str] = []
        self.sent = 0
        self._bootstrap = bootstrap
        self._topic = topic
        self._rate = rate
        self._feeds = [MadeFeed(seed, SYMBOLS[at % len(SYMBOLS)]).endless() for at in range(partitions)]
        self._placed: list[list[tuple[int, Message]]] = [[] for _ in range(partitions)]
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._guarded, name="archive-feed", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the feed and waits for all acknowledgements. ``wrong`` names what is missing."""
        self._done.set()
        self._thread.join(2 * FLUSH_S)
        if self._thread.is_alive():
            self.wrong.append("the feed does not come to an end")

    @property
    def acknowledged(self) -> int:
        """Number of messages that must be archived."""
        return sum(len(placed) for placed in self._placed)

    def expected(self) -> Tallies:
        """Returns the tallies of all partitions."""
        return added(expected_at(placed) for placed in self._placed)

    def _guarded(self) -> None:
        try:
            self._work()
        except Exception as error:
            self.wrong.append(f"the feed: {error!r}")

    def _work(self) -> None:
        from confluent_kafka import Producer

        producer = Producer({**PRODUCER, "bootstrap.servers": self._bootstrap})
        began = time.monotonic()
        while not self._done.is_set():
            due = min(int((time.monotonic() - began) * self._rate), self.sent + 500)
            while self.sent < due:
                self._send(producer, self._placed)
            producer.poll(0.01)
        if left := producer.flush(FLUSH_S):
            self.wrong.append(f"{left} messages of the feed were not acknowledged")

    def _send(self, producer: Any, placed: Sequence[list[tuple[int, Message]]]) -> None:
        """Sends the next message; partitions take turns. Once acknowledged, (offset, message) goes into ``placed``."""
        partition = self.sent % len(self._feeds)
        message = next(self._feeds[partition])
        self.sent += 1

        def delivered(error: Any, record: Any) -> None:
            if error is None:
                placed[partition].append((record.offset(), message))
            else:
                self._failed(error)

        key = SYMBOLS[partition % len(SYMBOLS)].encode()
        send(producer, self._topic, partition, key, message, delivered)

    def _failed(self, error: Any) -> None:
        self.wrong.append(f"a message was not delivered: {error}")


class TransactionalFeed(Feed):
    """The same feed in transactions. Some are aborted on purpose, others because the broker died."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, rate: int, seed: int) -> None:
        super().__init__(bootstrap, topic, partitions, rate, seed)
        self.committed = self.aborted = self.messages_aborted = 0
        self._random = random.Random(seed)

    def _work(self) -> None:
        producer = self._producer()
        began = time.monotonic()
        while not self._done.is_set():
            if not self._transaction(producer):
                producer = self._producer()
            time.sleep(max(0.0, self.sent / self._rate - (time.monotonic() - began)))

    def _producer(self) -> Any:
        """Returns a new producer of the same transactional id. The broker aborts what the old one left open."""
        from confluent_kafka import Producer

        settings = {key: value for key, value in PRODUCER.items() if key != "message.timeout.ms"}
        producer = Producer(
            {**settings, "bootstrap.servers": self._bootstrap, "transactional.id": f"feed-{self._topic}"}
        )
        _until_done(producer.init_transactions)
        return producer

    def _transaction(self, producer: Any) -> bool:
        """Sends one transaction, whose messages must be archived if and only if it commits.

        Returns whether the producer can continue.
        """
        placed: list[list[tuple[int, Message]]] = [[] for _ in self._feeds]
        producer.begin_transaction()
        begun_at = self.sent
        for _ in range(self._random.randint(*TRANSACTION)):
            self._send(producer, placed)
        if self._random.random() >= ABORTED and _until_done(producer.commit_transaction):
            self.committed += 1
            for whole, part in zip(self._placed, placed, strict=True):
                whole.extend(sorted(part, key=lambda item: item[0]))
            if sum(map(len, placed)) != self.sent - begun_at:
                self.wrong.append("a committed transaction has messages without an offset")
            return True
        self.aborted += 1
        return self._abort(producer, placed)

    def _abort(self, producer: Any, placed: Sequence[Sequence[object]]) -> bool:
        """Aborts a transaction after its messages have reached the log, if possible: they must not be archived.

        Returns whether the producer can continue.
        """
        from confluent_kafka import KafkaException

        producer.flush(CALL_S)
        self.messages_aborted += sum(map(len, placed))
        try:
            _until_done(producer.abort_transaction)
        except KafkaException as error:
            if not error.args[0].fatal():
                raise
            return False
        return True

    def _failed(self, error: Any) -> None:
        """Does nothing: the transaction is aborted, and its messages aren't expected."""


def _until_done(call: Any) -> bool:
    """Repeats a call while its error is retriable. Returns False if the transaction must be aborted instead.

    :raises KafkaException: neither a retry nor an abort helps
    """
    from confluent_kafka import KafkaException

    deadline = time.monotonic() + FLUSH_S
    while True:
        try:
            call(CALL_S)
        except KafkaException as error:
            problem = error.args[0]
            if problem.txn_requires_abort():
                return False
            if not problem.retriable() or time.monotonic() > deadline:
                raise
        else:
            return True
