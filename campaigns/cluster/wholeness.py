"""Whether a cluster is whole: every broker is there, every replica in sync, and each partition takes records."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaException

from campaigns.clients.load.load import Load
from campaigns.waits import await_true

WHOLE_S = 90.0
ASK_S = 10.0


def await_whole(make_admin: Callable[[], Any], nodes: int, load: Load, words: str) -> None:
    """Wait until a cluster of so many brokers, with a replica of each topic on each, is whole. What isn't in time is
    noted as wrong.
    """
    admin = make_admin()
    seen: Any = None

    def is_whole() -> bool:
        nonlocal seen
        try:
            seen = admin.list_topics(timeout=ASK_S)
        except KafkaException as error:
            seen = error
            return False
        parts = [part for topic in seen.topics.values() for part in topic.partitions.values()]
        return len(seen.brokers) == nodes and all(len(part.isrs) == nodes for part in parts)

    if not await_true(is_whole, WHOLE_S, 0.2):
        load.wrong.append(f"{words}: not whole in {WHOLE_S:.0f} s: {seen}")
    if any(load.ack_times) and not load.await_acks(time.monotonic(), WHOLE_S):
        load.wrong.append(f"{words}: a partition takes no records")
