"""Which broker made librdkafka begin a new producer epoch: only then can an idempotent producer write a record twice.

A new leader can refuse the first of two pipelined batches, because it doesn't lead yet, and see the second one when it
does. Apache Kafka answers OUT_OF_ORDER_SEQUENCE_NUMBER to that one. librdkafka then begins a new epoch in all
partitions, and sends again what is not acknowledged. What was written and not acknowledged is then in the log twice.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from typing import Any

from campaigns.clients.load.producers import Librdkafka

BEGINS_EPOCH = re.compile(r"thrd:[^\]]*/(\d+)\]: Beginning partition drain .* epoch bump .*: (.*)$")
"""librdkafka's line, printed in the thread of the broker whose answer it is about."""
NOBODY = -1


class EpochLog(logging.Handler):
    """Reads librdkafka's log, and counts the new epochs by the broker that caused them and by the reason."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: Counter[tuple[int, str]] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        """Take a line of the log."""
        text = record.getMessage()
        if "epoch bump" in text and "Beginning partition drain" in text:
            match = BEGINS_EPOCH.search(text)
            self.begun[(int(match[1]), match[2]) if match else (NOBODY, text)] += 1

    def producer(self, bootstrap: str, topic: str, partitions: int, rate_per_s: float) -> Librdkafka:
        """Return the producer of the load, with its log read by this."""
        logger = logging.Logger("producer-epochs", logging.DEBUG)
        logger.addHandler(self)
        options: dict[str, Any] = {"debug": "eos", "log_level": 7, "logger": logger}
        return Librdkafka(bootstrap, topic, partitions, rate_per_s, **options)

    def brokers(self) -> set[int]:
        """Return the brokers that caused a new epoch."""
        return {broker for broker, _ in self.begun}
