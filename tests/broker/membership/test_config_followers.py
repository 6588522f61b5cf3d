"""Parts of the kernel that follow the configuration: they hear of each change at run time."""

from __future__ import annotations

from blumfeld.spi.cluster import BROKER_RESOURCE, ImageDelta
from tests.broker.harness import BrokerHarness


def test_a_follower_hears_of_the_configuration_now_and_of_each_change() -> None:
    """Changes of this broker's keys and of the default of all brokers are followed; a topic's are not."""
    broker = BrokerHarness()
    heard: list[int] = []
    broker.broker.follow_config(lambda config: heard.append(config.int("max.connections")))
    for name, value in (("1", "5"), ("", "7"), ("other", "9")):
        broker.metadata.image.configs[BROKER_RESOURCE, name] = {"max.connections": value}
        broker.metadata.tell(ImageDelta(configs_changed=((BROKER_RESOURCE, name),)))
    assert heard == [2**31 - 1, 5, 5]
