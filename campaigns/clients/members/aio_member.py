"""A member with aiokafka: ``python -m campaigns.clients.members.aio_member``, its spec on stdin."""

from __future__ import annotations

import asyncio
import json
import sys
from importlib import import_module
from typing import Any

from campaigns.clients.client import SESSION_TIMEOUT_MS
from campaigns.clients.live_members import commitment, consumption, places, say, until_terminated

ASSIGNORS = {
    "": "roundrobin.RoundRobinPartitionAssignor",
    "range": "range.RangePartitionAssignor",
    "roundrobin": "roundrobin.RoundRobinPartitionAssignor",
}


async def consume(spec: dict[str, Any]) -> None:
    """Until SIGTERM."""
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc, unused-ignore]
        def on_partitions_assigned(self, assigned: Any) -> None:
            say("partitions_assigned", partitions=places(sorted(assigned)))

        def on_partitions_revoked(self, revoked: Any) -> None:
            say("partitions_revoked", partitions=places(sorted(revoked)))

    goes_on = until_terminated()
    module, _, class_name = ASSIGNORS[spec["assignor"]].partition(".")
    consumer = AIOKafkaConsumer(
        bootstrap_servers=spec["bootstrap"],
        group_id=spec["group"],
        group_instance_id=spec["instance_id"] or None,
        partition_assignment_strategy=[
            getattr(import_module(f"aiokafka.coordinator.assignors.{module}"), class_name)
        ],
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        heartbeat_interval_ms=500,
        metadata_max_age_ms=1000,
    )
    what: dict[str, Any] = {"pattern": spec["topic"]} if spec["regex"] else {"topics": [spec["topic"]]}
    consumer.subscribe(**what, listener=Listener())
    await consumer.start()
    say("startup_complete")
    while goes_on():
        await _poll(consumer)
    await consumer.stop()
    say("shutdown_complete")


async def _poll(consumer: Any) -> None:
    from aiokafka.errors import KafkaError

    got = await consumer.getmany(timeout_ms=200)
    seen = {(p.topic, p.partition): [m.offset for m in messages] for p, messages in got.items() if messages}
    if not seen:
        return
    say("records_consumed", **consumption(seen))
    wanted = {p: messages[-1].offset + 1 for p, messages in got.items() if messages}
    try:
        await consumer.commit(wanted)
    except KafkaError as error:
        say("offsets_committed", success=False, error=f"{type(error).__name__}: {error}")
    else:
        say("offsets_committed", **commitment(seen))


if __name__ == "__main__":
    asyncio.run(consume(json.load(sys.stdin)))
