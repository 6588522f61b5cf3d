"""Topics with ``remote.storage.enable``: what their settings may be, and how they may change.

Each case was played to Kafka 4.3.1 with remote storage on (CreateTopics, AlterConfigs and IncrementalAlterConfigs). It
answered NONE or INVALID_CONFIG as it stands here.
"""

from __future__ import annotations

import pytest

from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages import alter_configs as legacy
from blumfeld.wire.messages.create_topics import CreatableTopicConfig
from tests.metadata.driven import DELETE, SET, Driven

TOPIC = 2
ON, COPIES_END, DELETES = "remote.storage.enable", "remote.log.copy.disable", "remote.log.delete.on.disable"
Values = dict[str, str]
NONE, INVALID = ErrorCode.NONE, ErrorCode.INVALID_CONFIG

CREATED: list[tuple[Values, ErrorCode]] = [
    ({}, NONE),
    ({"cleanup.policy": "compact"}, INVALID),
    ({"cleanup.policy": "compact,delete"}, INVALID),
    ({"cleanup.policy": ""}, NONE),
    ({"local.retention.ms": "10", "retention.ms": "9"}, INVALID),
    ({"local.retention.ms": "-1", "retention.ms": "9"}, INVALID),
    ({"local.retention.ms": "-1", "retention.ms": "-1"}, NONE),
    ({"local.retention.bytes": "10", "retention.bytes": "9"}, INVALID),
    ({"local.retention.bytes": "-1", "retention.bytes": "9"}, INVALID),
    ({"local.retention.bytes": "-1"}, NONE),
    ({"local.retention.ms": "-3"}, INVALID),
    ({COPIES_END: "true"}, NONE),
    ({COPIES_END: "true", "local.retention.ms": "1000"}, INVALID),
    ({COPIES_END: "true", "local.retention.ms": "1000", "retention.ms": "1000"}, NONE),
    ({COPIES_END: "true", "local.retention.bytes": "1000"}, INVALID),
    ({COPIES_END: "true", "local.retention.ms": "-1", "retention.ms": "-1"}, NONE),
    ({DELETES: "true"}, NONE),
    ({ON: "false", COPIES_END: "true"}, NONE),
    ({ON: "false", "local.retention.ms": "10", "retention.ms": "9"}, NONE),
]
ALTERED: list[tuple[Values, dict[str, str | None], ErrorCode]] = [
    ({ON: "true"}, {ON: "false"}, INVALID),
    ({ON: "true"}, {ON: None}, INVALID),
    ({ON: "true"}, {ON: "false", DELETES: "true"}, NONE),
    ({ON: "true", DELETES: "true"}, {ON: None}, NONE),
    ({ON: "true", DELETES: "true"}, {ON: "false"}, NONE),
    ({ON: "true"}, {"cleanup.policy": "compact"}, INVALID),
    ({"cleanup.policy": "compact"}, {ON: "true"}, INVALID),
    ({}, {ON: "true"}, NONE),
    ({}, {ON: "false"}, NONE),
    ({ON: "true"}, {COPIES_END: "true"}, NONE),
    ({ON: "true"}, {DELETES: "true"}, NONE),
    ({ON: "true", "local.retention.ms": "1000"}, {COPIES_END: "true"}, INVALID),
    ({ON: "true"}, {"retention.ms": "5", "local.retention.ms": "6"}, INVALID),
    ({ON: "true", "local.retention.ms": "1000"}, {"retention.ms": "5"}, INVALID),
    ({COPIES_END: "true"}, {ON: "true", "local.retention.ms": "5"}, INVALID),
]


def controller(*, tiers: bool = True) -> Driven:
    driven = Driven(config={"remote.log.storage.system.enable": tiers})
    driven.join(1)
    return driven


def created(driven: Driven, configs: Values, name: str = "t") -> tuple[int, str | None]:
    result = driven.create(name, configs=[CreatableTopicConfig(name=n, value=v) for n, v in configs.items()])
    return result.error_code, result.error_message


@pytest.mark.parametrize(("configs", "code"), CREATED)
def test_a_tiered_topic_is_created_as_by_kafka(configs: Values, code: ErrorCode) -> None:
    assert created(controller(), {ON: "true", **configs})[0] == code


@pytest.mark.parametrize(("configs", "changes", "code"), ALTERED)
@pytest.mark.parametrize("incremental", [True, False])
def test_a_topic_begins_and_ends_to_be_tiered_as_in_kafka(
    configs: Values, changes: dict[str, str | None], code: ErrorCode, incremental: bool
) -> None:
    driven = controller()
    assert created(driven, configs)[0] == 0
    if incremental:
        edits = [(k, DELETE if v is None else SET, v) for k, v in changes.items()]
        assert driven.alter_config(TOPIC, "t", *edits) == code
        return
    values = {key: value for key, value in {**configs, **changes}.items() if value is not None}
    request = legacy.AlterConfigsRequest(
        resources=[
            legacy.AlterConfigsResource(
                resource_type=TOPIC,
                resource_name="t",
                configs=[legacy.AlterableConfig(name=key, value=value) for key, value in values.items()],
            )
        ]
    )
    answer = driven.do(request, legacy.AlterConfigsResponse)
    assert answer.responses[0].error_code == code


def test_the_refusals_are_kafkas_own_sentences() -> None:
    _, compacted = created(controller(), {ON: "true", "cleanup.policy": "compact"})
    assert compacted is not None
    assert "Remote log storage only supports topics with cleanup.policy=delete" in compacted
    _, copies = created(controller(), {ON: "true", COPIES_END: "true", "local.retention.ms": "1"})
    assert copies is not None
    assert "`local.retention.ms` and `retention.ms` must be set to the identical value" in copies


@pytest.mark.parametrize("configs", [{ON: "true"}, {COPIES_END: "true"}, {DELETES: "true"}])
def test_a_build_whose_storage_does_not_tier_says_which_one_does(configs: Values) -> None:
    code, message = created(controller(tiers=False), configs)
    assert code == INVALID
    assert message is not None
    assert "storage_tiered" in message


@pytest.mark.parametrize("name", ["__remote_log_metadata", "__consumer_offsets", "__share_group_state"])
def test_a_topic_that_tiering_or_a_coordinator_reads_is_never_tiered(name: str) -> None:
    """Kafka takes the setting and doesn't do it. Here it would be done: the node would look up in the store where the
    store's own segments lie.
    """
    driven = controller()
    code, message = created(driven, {ON: "true"}, name)
    assert code == INVALID
    assert message is not None
    assert name in message
    assert created(driven, {ON: "false"}, name)[0] == NONE
    assert driven.alter_config(TOPIC, name, (ON, SET, "true")) == INVALID
    assert driven.alter_config(TOPIC, name, ("retention.ms", SET, "5")) == NONE
