"""IncrementalAlterConfigs and AlterConfigs, by resource and operation."""

from __future__ import annotations

import pytest

from blumfeld.config.definitions import BUILD_KEY
from blumfeld.config.effects import FIXED, REFUSED, WITHOUT, effect_of
from blumfeld.config.effects_table import READ_AT_START
from blumfeld.config.values import BROKER_CONFIGS, GROUP_CONFIGS, TOPIC_CONFIGS, ConfigDef, render
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages import alter_configs as legacy
from blumfeld.wire.messages.create_topics import CreatableTopicConfig
from blumfeld.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from blumfeld.wire.messages.metadata_records import ConfigRecord
from tests.config.test_effects import another_value
from tests.metadata.driven import APPEND, DELETE, SET, SUBTRACT, Driven, replayed

TOPIC, BROKER, GROUP = 2, 4, 32


@pytest.fixture
def driven() -> Driven:
    """One broker, one topic."""
    driven = Driven()
    driven.join(1)
    driven.create("alpha")
    return driven


def test_values_are_set_and_deleted(driven: Driven) -> None:
    assert driven.alter_config(TOPIC, "alpha", ("retention.ms", SET, "1000")) == 0
    assert driven.image.config(TOPIC, "alpha") == {"retention.ms": "1000"}
    assert driven.alter_config(TOPIC, "alpha", ("retention.ms", DELETE, None)) == 0
    assert driven.image.config(TOPIC, "alpha") == {}
    assert driven.alter_config(TOPIC, "alpha", ("no.such.key", DELETE, None)) == 0
    assert replayed(driven.log) == driven.image


def test_lists_grow_and_shrink_from_the_value_that_holds(driven: Driven) -> None:
    assert driven.alter_config(TOPIC, "alpha", ("cleanup.policy", APPEND, "compact")) == 0
    assert driven.image.config(TOPIC, "alpha") == {"cleanup.policy": "delete,compact"}
    assert driven.alter_config(TOPIC, "alpha", ("cleanup.policy", APPEND, "compact")) == 0
    assert driven.alter_config(TOPIC, "alpha", ("cleanup.policy", SUBTRACT, "delete,delete")) == 0
    assert driven.image.config(TOPIC, "alpha") == {"cleanup.policy": "compact"}


def test_what_is_appended_twice_is_there_once(driven: Driven) -> None:
    key = "leader.replication.throttled.replicas"
    assert driven.alter_config(TOPIC, "alpha", (key, APPEND, "0:1,1:1,1:1")) == 0
    assert driven.alter_config(TOPIC, "alpha", (key, APPEND, "1:1,2:1")) == 0
    assert driven.image.config(TOPIC, "alpha") == {key: "0:1,1:1,2:1"}


def test_a_list_with_doubles_is_taken(driven: Driven) -> None:
    assert driven.alter_config(TOPIC, "alpha", ("cleanup.policy", SET, "delete,delete")) == 0
    assert driven.alter_config(BROKER, "", ("log.cleanup.policy", SET, "compact,delete,compact")) == 0


@pytest.mark.parametrize(
    ("kind", "name", "edit", "code"),
    [
        (TOPIC, "alpha", ("retention.ms", APPEND, "1"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "alpha", ("retention.ms", SET, "soon"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "alpha", ("no.such.key", SET, "1"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "alpha", ("retention.ms", SET, None), ErrorCode.INVALID_REQUEST),
        (TOPIC, "alpha", ("retention.ms", 9, "1"), ErrorCode.INVALID_REQUEST),
        (TOPIC, "beta", ("retention.ms", SET, "1"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "", ("retention.ms", SET, "1"), ErrorCode.INVALID_REQUEST),
        (TOPIC, "a b", ("retention.ms", SET, "1"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "x", ("log.retention.ms", SET, "1"), ErrorCode.INVALID_REQUEST),
        (BROKER, "7", ("log.retention.ms", SET, "1"), ErrorCode.BROKER_ID_NOT_REGISTERED),
        (BROKER, "1", ("node.id", SET, "7"), ErrorCode.INVALID_REQUEST),
        (BROKER, "1", (BUILD_KEY, SET, "{}"), ErrorCode.INVALID_REQUEST),
        (BROKER, "1", (BUILD_KEY, DELETE, None), ErrorCode.INVALID_REQUEST),
        (BROKER, "", (BUILD_KEY, SET, "{}"), ErrorCode.INVALID_REQUEST),
        (BROKER, "1", ("log.retention.ms", SET, "x"), ErrorCode.INVALID_REQUEST),
        (GROUP, "g", ("consumer.session.timeout.ms", SET, "1"), ErrorCode.INVALID_CONFIG),
        (GROUP, "g", ("consumer.session.timeout.ms", SET, "5000"), ErrorCode.INVALID_CONFIG),
        (GROUP, "", ("consumer.session.timeout.ms", SET, "45000"), ErrorCode.INVALID_REQUEST),
        (99, "x", ("retention.ms", SET, "1"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_altered(
    driven: Driven, kind: int, name: str, edit: tuple[str, int, str | None], code: ErrorCode
) -> None:
    before = len(driven.log)
    assert driven.alter_config(kind, name, edit) == code
    assert len(driven.log) == before


def test_a_key_that_a_start_alone_reads_is_refused_in_kafkas_words(driven: Driven) -> None:
    config = AlterableConfig(name="node.id", config_operation=SET, value="7")
    resource = AlterConfigsResource(resource_type=BROKER, resource_name="1", configs=[config])
    request = IncrementalAlterConfigsRequest(resources=[resource])
    (response,) = driven.do(request, IncrementalAlterConfigsResponse).responses
    assert response.error_message == "Cannot update these configs dynamically: node.id"


def test_brokers_the_default_for_brokers_and_groups(driven: Driven) -> None:
    assert driven.alter_config(BROKER, "", ("log.retention.ms", SET, "7")) == 0
    assert driven.alter_config(BROKER, "1", ("log.retention.ms", SET, "8")) == 0
    assert driven.alter_config(GROUP, "g", ("consumer.session.timeout.ms", SET, "46000")) == 0
    assert driven.image.config(BROKER, "") == {"log.retention.ms": "7"}
    assert driven.image.config(BROKER, "1") == {"log.retention.ms": "8"}
    assert driven.image.config(GROUP, "g") == {"consumer.session.timeout.ms": "46000"}


def test_a_brokers_value_is_written_again_a_topics_is_not(driven: Driven) -> None:
    """So that a broker reloads a key store whose file changed under the same name (KAFKA-14136)."""
    for _ in range(2):
        driven.alter_config(BROKER, "1", ("log.retention.ms", SET, "8"))
        driven.alter_config(TOPIC, "alpha", ("retention.ms", SET, "8"))
    written = [r.meta.name for r in driven.log].count("ConfigRecord")
    assert written == 3


def test_a_resource_is_altered_whole_or_not_at_all(driven: Driven) -> None:
    edits = (("retention.ms", SET, "1000"), ("segment.bytes", SET, "x"))
    assert driven.alter_config(TOPIC, "alpha", *edits) == ErrorCode.INVALID_CONFIG
    assert driven.image.config(TOPIC, "alpha") == {}
    twice = (("retention.ms", SET, "1"), ("retention.ms", SET, "2"))
    assert driven.alter_config(TOPIC, "alpha", *twice) == ErrorCode.INVALID_REQUEST


def test_values_must_fit_together(driven: Driven) -> None:
    assert driven.alter_config(TOPIC, "alpha", ("max.compaction.lag.ms", SET, "10")) == 0
    refused = driven.alter_config(TOPIC, "alpha", ("min.compaction.lag.ms", SET, "20"))
    assert refused == ErrorCode.INVALID_CONFIG


def test_validate_only_writes_nothing(driven: Driven) -> None:
    assert driven.alter_config(TOPIC, "alpha", ("retention.ms", SET, "1000"), validate_only=True) == 0
    assert driven.image.config(TOPIC, "alpha") == {}


def test_a_resource_twice_is_refused(driven: Driven) -> None:
    resource = AlterConfigsResource(resource_type=TOPIC, resource_name="alpha")
    request = IncrementalAlterConfigsRequest(resources=[resource, resource])
    response = driven.do(request, IncrementalAlterConfigsResponse)
    assert [r.error_code for r in response.responses] == [ErrorCode.INVALID_REQUEST] * 2


def test_the_old_way_replaces_everything(driven: Driven) -> None:
    driven.alter_config(TOPIC, "alpha", ("retention.ms", SET, "1000"), ("segment.ms", SET, "2000"))
    resource = legacy.AlterConfigsResource(
        resource_type=TOPIC,
        resource_name="alpha",
        configs=[legacy.AlterableConfig(name="retention.bytes", value="5")],
    )
    request = legacy.AlterConfigsRequest(resources=[resource])
    assert driven.do(request, legacy.AlterConfigsResponse).responses[0].error_code == 0
    assert driven.image.config(TOPIC, "alpha") == {"retention.bytes": "5"}


# The classes of Kafka's keys


KINDS = ((TOPIC, "alpha", TOPIC_CONFIGS), (BROKER, "1", BROKER_CONFIGS), (GROUP, "g", GROUP_CONFIGS))


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
    ("kind", "name", "defn"), keys(FIXED, REFUSED), ids=lambda parameter: getattr(parameter, "name", "")
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


@pytest.mark.parametrize(
    ("kind", "name", "defn"), keys(WITHOUT), ids=lambda parameter: getattr(parameter, "name", "")
)
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
