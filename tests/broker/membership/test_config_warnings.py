"""Configuration in the cluster's metadata that has no effect here: the broker starts, and says which it is."""

from __future__ import annotations

from typing import Any

from blumfeld.broker.membership.config_warnings import FIRST_LOOK_MS, NAMED_MAX
from blumfeld.spi.cluster import BROKER_RESOURCE, TOPIC_RESOURCE, ImageDelta
from blumfeld.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tests.broker.harness import BrokerHarness

EVENT = "configuration in the cluster's metadata has no effect here"


def warnings(broker: BrokerHarness) -> list[dict[str, Any]]:
    return [values for level, event, values in broker.log.events if (level, event) == ("warning", EVENT)]


def with_metadata_of_kafka() -> BrokerHarness:
    """A broker that is about to start on metadata which a later Kafka wrote."""
    broker = BrokerHarness(start=False)
    configs = broker.metadata.image.configs
    configs[BROKER_RESOURCE, ""] = {
        "sasl.enabled.mechanisms": "PLAIN",
        "a.later.key": "1",
        "num.io.threads": "3",
    }
    configs[BROKER_RESOURCE, "1"] = {
        "log.segment.bytes": "many",
        "replica.alter.log.dirs.io.max.bytes.per.second": "5",
    }
    broker.metadata.create_topic("ticks", configs={"remote.storage.enable": "true", "a.later.key": "1"})
    broker.metadata.create_topic("plain", configs={"retention.ms": "1000"})
    return broker


def test_a_broker_starts_on_keys_that_it_refuses_and_names_each_once() -> None:
    broker = with_metadata_of_kafka()
    broker.start()
    broker.runtime.advance(FIRST_LOOK_MS)
    (warning,) = warnings(broker)
    assert [line.partition(" (")[0] for line in warning["keys"].split("; ")] == [
        "topic ticks: remote.storage.enable",
        "topic ticks: a.later.key",
        "broker default: sasl.enabled.mechanisms",
        "broker default: a.later.key",
        "broker default: num.io.threads",
        "broker 1: log.segment.bytes",
        "broker 1: replica.alter.log.dirs.io.max.bytes.per.second",
    ]
    everything = (BROKER_RESOURCE, ""), (BROKER_RESOURCE, "1"), (TOPIC_RESOURCE, "ticks")
    broker.metadata.tell(ImageDelta(configs_changed=everything))
    assert len(warnings(broker)) == 1


def test_what_can_be_read_of_it_holds() -> None:
    broker = with_metadata_of_kafka()
    broker.start()
    assert broker.broker.cluster.config.int("num.io.threads") == 3
    assert broker.broker.cluster.config.int("log.segment.bytes") == 1 << 30
    assert broker.broker.cluster.topic_config("plain").retention_ms == 1_000
    assert broker.broker.cluster.topic_config("ticks").retention_ms == 604_800_000


def test_a_key_without_effect_that_comes_later_is_named_then() -> None:
    broker = BrokerHarness()
    broker.runtime.advance(FIRST_LOOK_MS)
    broker.metadata.image.configs[BROKER_RESOURCE, "1"] = {
        "num.network.threads": "9",
        "log.cleaner.threads": "2",
    }
    broker.metadata.tell(ImageDelta(configs_changed=((BROKER_RESOURCE, "1"),)))
    (warning,) = warnings(broker)
    assert warning["keys"].startswith("broker 1: num.network.threads (one event loop")
    assert "log.cleaner.threads" not in warning["keys"]


def test_a_warning_has_an_end() -> None:
    broker = BrokerHarness(start=False)
    for number in range(NAMED_MAX + 7):
        broker.metadata.create_topic(f"t{number}", configs={"remote.storage.enable": "true"})
    broker.start()
    broker.runtime.advance(FIRST_LOOK_MS)
    (warning,) = warnings(broker)
    assert warning["keys"].count("; ") == NAMED_MAX - 1
    assert warning["more"] == 7


def described(broker: BrokerHarness, name: str, *keys: str, documentation: bool = True) -> list[Any]:
    resource = DescribeConfigsResource(
        resource_type=BROKER_RESOURCE, resource_name=name, configuration_keys=list(keys) or None
    )
    request = DescribeConfigsRequest(resources=[resource], include_documentation=documentation)
    return list(broker.ask(request, 4).results[0].configs)


def test_a_described_key_says_what_becomes_of_it() -> None:
    broker = BrokerHarness()
    keys = (
        "num.io.threads",
        "ssl.client.auth",
        "log.segment.bytes",
        "replica.alter.log.dirs.io.max.bytes.per.second",
        "node.id",
    )
    texts = {one.name: (one.read_only, one.documentation) for one in described(broker, "1", *keys)}
    assert texts["num.io.threads"] == (
        False,
        "The number of threads that handle requests. Without effect here: one event loop serves all "
        "connections, beside a few workers whose number is fixed.",
    )
    assert texts["ssl.client.auth"][1].endswith("may do everything.")
    assert texts["log.segment.bytes"] == (False, "The size at which a log begins a new segment. Honoured.")
    assert texts["replica.alter.log.dirs.io.max.bytes.per.second"][
        0
    ]  # Kafka changes it at run time, this broker doesn't
    assert texts["node.id"] == (True, "The id of this node. The manifest says it in node.id.")
    assert [one.documentation for one in described(broker, "1", "node.id", documentation=False)] == [None]


def test_keys_of_a_later_kafka_are_left_out_of_a_description() -> None:
    broker = with_metadata_of_kafka()
    broker.start()
    assert [one.name for one in described(broker, "")] == ["sasl.enabled.mechanisms", "num.io.threads"]
