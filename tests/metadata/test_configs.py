"""IncrementalAlterConfigs and AlterConfigs, by resource and operation."""

from __future__ import annotations

import pytest

from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages import alter_configs as legacy
from blumfeld.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
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
