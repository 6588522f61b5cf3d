"""A coordinator on any internal topic: its shards come and go with the leadership of the topic's partitions."""

from __future__ import annotations

from typing import Any

from blumfeld.broker.coordination.led_topic import LedTopic
from blumfeld.coordinator.runtime.host import HostState
from blumfeld.spi.groups import Decision
from blumfeld.spi.internal_topics import TRANSACTIONS_TOPIC
from tests.broker.harness import BrokerHarness


class EmptyShard:
    """Decides nothing, and remembers nothing."""

    def replay(self, item: Any) -> None: ...
    def replay_run(self, run: Any) -> None: ...
    def command(self, command: Any, context: Any, now_ms: int) -> Decision:
        return Decision()

    def loaded(self, now_ms: int) -> Decision:
        return Decision()


def test_shards_follow_the_leadership_of_their_topic() -> None:
    broker = BrokerHarness()
    made: list[int] = []

    def new_shard(index: int) -> Any:
        made.append(index)
        return EmptyShard()

    led = LedTopic(
        TRANSACTIONS_TOPIC,
        new_shard,
        runtime=broker.broker.runtime,
        events=broker.broker.events,
        partitions=broker.broker.partitions,
        image=lambda: broker.broker.cluster.image,
    )
    broker.create_topic("t", 3)
    assert made == []
    broker.create_topic(TRANSACTIONS_TOPIC, 2)
    broker.runtime.run_turn()
    assert sorted(made) == [0, 1]
    assert [host.state for host in led.coordinator.hosts] == [HostState.ACTIVE] * 2
    broker.change_partition(TRANSACTIONS_TOPIC, 1, leader=-1, epoch=9, partition_epoch=9)
    broker.runtime.run_turn()
    assert len([host for host in led.coordinator.hosts if host.state is HostState.ACTIVE]) == 1
