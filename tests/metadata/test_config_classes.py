"""The classes of Kafka's keys, as AlterConfigs, IncrementalAlterConfigs and CreateTopics meet them."""

from __future__ import annotations

import pytest

from blumfeld.config.effects import FIXED, REFUSED, WITHOUT, effect_of
from blumfeld.config.effects_table import READ_AT_START
from blumfeld.config.values import BROKER_CONFIGS, GROUP_CONFIGS, TOPIC_CONFIGS, ConfigDef, render
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages import alter_configs as legacy
from blumfeld.wire.messages.create_topics import CreatableTopicConfig
from blumfeld.wire.messages.metadata_records import ConfigRecord
from tests.config.test_effects import another_value
from tests.metadata.driven import DELETE, SET, Driven
from tests.metadata.test_configs import BROKER, GROUP, TOPIC

KINDS = ((TOPIC, "alpha", TOPIC_CONFIGS), (BROKER, "1", BROKER_CONFIGS), (GROUP, "g", GROUP_CONFIGS))


@pytest.fixture(scope="module")
def driven() -> Driven:
    """One broker, one topic; tests change nothing that another looks at."""
    driven = Driven()
    driven.join(1)
    driven.create("alpha")
    return driven


def keys(*effects: str) -> list[tuple[int, str, ConfigDef]]:
    """(resource type, resource, key) of the keys that Kafka lets be changed at run time."""
    return [
        (kind, name, defn)
        for kind, name, table in KINDS
        for defn in table.values()
        if effect_of(defn).effect in effects and (kind != BROKER or not defn.read_only)
    ]


def other(defn: ConfigDef) -> str:
    return str(render(defn, another_value(defn)))


def replace(driven: Driven, kind: int, name: str, key: str, value: str) -> int:
    """The older AlterConfigs; its error."""
    resource = legacy.AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=[legacy.AlterableConfig(name=key, value=value)]
    )
    request = legacy.AlterConfigsRequest(resources=[resource], validate_only=True)
    return driven.do(request, legacy.AlterConfigsResponse).responses[0].error_code


@pytest.mark.parametrize(
    ("kind", "name", "defn"), keys(FIXED, REFUSED), ids=lambda one: getattr(one, "name", "")
)
def test_a_refused_key_is_refused_at_run_time(driven: Driven, kind: int, name: str, defn: ConfigDef) -> None:
    code = ErrorCode.INVALID_REQUEST if kind == BROKER else ErrorCode.INVALID_CONFIG
    assert driven.alter_config(kind, name, (defn.name, SET, other(defn)), validate_only=True) == code
    assert replace(driven, kind, name, defn.name, other(defn)) == code
    default = render(defn, defn.default)
    if default is not None:
        assert driven.alter_config(kind, name, (defn.name, SET, default), validate_only=True) == 0


@pytest.mark.parametrize(
    "defn",
    [d for d in TOPIC_CONFIGS.values() if effect_of(d).effect in (FIXED, REFUSED)],
    ids=lambda d: d.name,
)
def test_a_topic_with_a_refused_key_is_not_created(driven: Driven, defn: ConfigDef) -> None:
    result = driven.create("beta", configs=[CreatableTopicConfig(name=defn.name, value=other(defn))])
    assert result.error_code == ErrorCode.INVALID_CONFIG
    assert result.error_message is not None
    assert effect_of(defn).where in result.error_message
    assert "beta" not in driven.image.topics


@pytest.mark.parametrize("key", sorted(READ_AT_START))
def test_a_key_that_is_read_at_the_start_is_not_changed_later(driven: Driven, key: str) -> None:
    """Kafka changes it at run time; taking it here would have no effect."""
    text = "PLAINTEXT:PLAINTEXT" if key == "listener.security.protocol.map" else "7"
    assert driven.alter_config(BROKER, "1", (key, SET, text), validate_only=True) == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("key", "code"),
    [
        ("listener.name.plaintext.ssl.client.auth", ErrorCode.INVALID_REQUEST),
        ("listener.name.plaintext.log.segment.bytes", ErrorCode.INVALID_REQUEST),
        ("listener.name.plaintext.max.connections", ErrorCode.NONE),
        ("max.connections.per.ip.overrides", ErrorCode.NONE),
        ("listeners", ErrorCode.INVALID_REQUEST),
    ],
)
def test_keys_of_listeners_at_run_time(driven: Driven, key: str, code: int) -> None:
    value = {"listeners": "PLAINTEXT://:9099"}.get(key, other(BROKER_CONFIGS.find(key)))
    assert driven.alter_config(BROKER, "1", (key, SET, value), validate_only=True) == code


@pytest.mark.parametrize(("kind", "name", "defn"), keys(WITHOUT), ids=lambda one: getattr(one, "name", ""))
def test_a_key_without_effect_is_taken(driven: Driven, kind: int, name: str, defn: ConfigDef) -> None:
    assert driven.alter_config(kind, name, (defn.name, SET, other(defn)), validate_only=True) == 0


def test_what_kafka_wrote_stays_and_can_be_deleted() -> None:
    """A topic that Kafka tiered can still be altered; the older AlterConfigs may name the value again."""
    driven = Driven()
    driven.join(1)
    driven.create("alpha")
    written = ConfigRecord(
        resource_type=TOPIC, resource_name="alpha", name="remote.storage.enable", value="true"
    )
    driven.place([written])
    assert driven.alter_config(TOPIC, "alpha", ("retention.ms", SET, "1000")) == 0
    assert replace(driven, TOPIC, "alpha", "remote.storage.enable", "true") == 0
    assert driven.alter_config(TOPIC, "alpha", ("remote.storage.enable", DELETE, None)) == 0
    assert driven.image.config(TOPIC, "alpha") == {"retention.ms": "1000"}
