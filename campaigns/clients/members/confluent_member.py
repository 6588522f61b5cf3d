"""A member with librdkafka: ``python -m campaigns.clients.members.confluent_member``, its spec on stdin."""

from __future__ import annotations

import json
import sys
from typing import Any

from campaigns.clients.access import access
from campaigns.clients.client import SESSION_TIMEOUT_MS
from campaigns.clients.live_members import places, say, tell, until_terminated


def settings(spec: dict[str, Any]) -> dict[str, Any]:
    """librdkafka's settings. With KIP-848 the session timeout and the assignor are the broker's."""
    given: dict[str, Any] = {
        **access().librdkafka(),
        "bootstrap.servers": spec["bootstrap"],
        "group.id": spec["group"],
        "group.protocol": spec["protocol"],
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "topic.metadata.refresh.interval.ms": 1000,
        "fetch.wait.max.ms": 200,
    }
    if spec["instance_id"]:
        given["group.instance.id"] = spec["instance_id"]
    if spec["protocol"] == "classic":
        given["session.timeout.ms"] = SESSION_TIMEOUT_MS
        given["heartbeat.interval.ms"] = 500
    if spec["assignor"]:
        key = "partition.assignment.strategy" if spec["protocol"] == "classic" else "group.remote.assignor"
        given[key] = spec["assignor"]
    return given


def main() -> None:
    """Consume until SIGTERM."""
    from confluent_kafka import Consumer

    spec = json.load(sys.stdin)
    goes_on = until_terminated()
    consumer = Consumer(settings(spec))
    # librdkafka takes for a regular expression what begins with ^.
    topic = f"^{spec['topic']}$" if spec["regex"] else spec["topic"]
    consumer.subscribe(
        [topic],
        on_assign=lambda _, partitions: say("partitions_assigned", partitions=places(partitions)),
        on_revoke=lambda _, partitions: say("partitions_revoked", partitions=places(partitions)),
        on_lost=lambda _, partitions: say("partitions_lost", partitions=places(partitions)),
    )
    say("startup_complete")
    while goes_on():
        _poll(consumer)
    consumer.close()
    say("shutdown_complete")


def _poll(consumer: Any) -> None:
    from confluent_kafka import KafkaException, TopicPartition

    seen: dict[tuple[str, int], list[int]] = {}
    for message in consumer.consume(500, 0.2):
        if message.error():
            print(message.error(), file=sys.stderr)
        else:
            seen.setdefault((message.topic(), message.partition()), []).append(message.offset())

    def commit() -> str:
        wanted = [TopicPartition(t, n, offsets[-1] + 1) for (t, n), offsets in seen.items()]
        try:
            refused = [p.error for p in consumer.commit(offsets=wanted, asynchronous=False) if p.error]
        except KafkaException as error:
            return str(error)
        return str(refused[0]) if refused else ""

    tell(seen, commit)


if __name__ == "__main__":
    main()
