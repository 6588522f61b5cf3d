"""A member with kafka-python: ``python -m campaigns.clients.members.kafka_python_member``, its spec on stdin."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from typing import Any

from campaigns.clients.access import access
from campaigns.clients.client import SESSION_TIMEOUT_MS
from campaigns.clients.live_members import places, say, tell, until_terminated

ASSIGNORS = {
    "": "range.RangePartitionAssignor",
    "range": "range.RangePartitionAssignor",
    "roundrobin": "roundrobin.RoundRobinPartitionAssignor",
    "cooperative-sticky": "cooperative_sticky.CooperativeStickyAssignor",
}


def assignor(name: str) -> Any:
    """The client's class for an assignor."""
    module, _, class_name = ASSIGNORS[name].partition(".")
    return getattr(import_module(f"kafka.coordinator.assignors.{module}"), class_name)


def learn_topic(consumer: Any, topic: str) -> None:
    """Have the client ask for the topic's partitions before it joins a group.

    If they first appear while the member leads a generation, kafka-python 3.0.12 rejoins, and a ``poll`` whose time is
    over during that rejoin forgets the assignment: the member owns nothing and sends no heartbeats (docs/suites.md).
    """
    consumer.partitions_for_topic(topic)


def main() -> None:
    """Consume until SIGTERM."""
    from kafka import ConsumerRebalanceListener, KafkaConsumer

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc, unused-ignore]
        def on_partitions_assigned(self, assigned: Any) -> None:
            say("partitions_assigned", partitions=places(sorted(assigned)))

        def on_partitions_revoked(self, revoked: Any) -> None:
            say("partitions_revoked", partitions=places(sorted(revoked)))

    spec = json.load(sys.stdin)
    goes_on = until_terminated()
    consumer = KafkaConsumer(
        bootstrap_servers=spec["bootstrap"],
        **access().kafka_python(),
        group_id=spec["group"],
        group_instance_id=spec["instance_id"] or None,
        partition_assignment_strategy=[assignor(spec["assignor"])],
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        heartbeat_interval_ms=500,
        metadata_max_age_ms=1000,
    )
    what: dict[str, Any] = {"pattern": spec["topic"]} if spec["regex"] else {"topics": [spec["topic"]]}
    if not spec["regex"]:
        learn_topic(consumer, spec["topic"])
    consumer.subscribe(**what, listener=Listener())
    say("startup_complete")
    while goes_on():
        _poll(consumer)
    consumer.close()
    say("shutdown_complete")


def _poll(consumer: Any) -> None:
    def commit() -> str:
        try:
            consumer.commit()
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return ""

    polled = consumer.poll(timeout_ms=200).items()
    tell({(p.topic, p.partition): [m.offset for m in messages] for p, messages in polled}, commit)


if __name__ == "__main__":
    main()
