"""KIP-848 groups beside their scripts: who may ask, what settings say, and what nothing changes costs."""

from __future__ import annotations

from typing import Any

import pytest

from blumfeld.config.values import BrokerConfig
from blumfeld.coordinator.groups.records import decode_record
from blumfeld.spi.cluster import BROKER_RESOURCE, GROUP_RESOURCE, BrokerImage
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from blumfeld.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from blumfeld_groups_kip848.protocol import ConsumerGroupProtocol
from blumfeld_groups_kip848.record_types import RECORD_TYPES
from blumfeld_groups_kip848.settings import GroupSettings
from blumfeld_groups_kip848.shard import ConsumerGroups
from blumfeld_groups_kip848.targets import subscriptions
from tests.coordinator.fakes import FakeContext, FakeImage, FakeLog, topic
from tests.coordinator.groups_fixture import Groups

CONFIG = {"group.consumer.assignment.interval.ms": 0}


def groups(**options: Any) -> Groups:
    made = Groups(CONFIG, log=FakeLog(), protocols=[ConsumerGroupProtocol()], **options)
    made.image.features_epoch = 1
    return made


def shard_of(made: Groups) -> ConsumerGroups:
    shard = made.shard.shard_of("consumer")
    assert isinstance(shard, ConsumerGroups)
    return shard


def first(member_id: str = "m", topics: tuple[str, ...] = ("t",)) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id=member_id,
        rebalance_timeout_ms=1000,
        subscribed_topic_names=list(topics),
        topic_partitions=[],
    )


def later(member_id: str = "m", epoch: int = 2) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(group_id="g", member_id=member_id, member_epoch=epoch)


@pytest.fixture
def made() -> Groups:
    return groups()


def test_a_cluster_without_the_feature_has_no_such_groups(made: Groups) -> None:
    made.image.features = {}
    answer = made.ask(first())
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert "no group.version" in (answer.error_message or "")


def test_topics_that_may_not_be_described_may_not_be_subscribed_to(made: Groups) -> None:

    def denied(operation: str, kind: str, name: str) -> bool:
        return (operation, kind, name) == ("Describe", "Topic", "u")

    assert made.ask(first(topics=("t",)), denied=denied).error_code == ErrorCode.NONE
    refused = made.ask(first(topics=("t", "u")), denied=denied)
    assert refused.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_an_expression_matches_topics_that_its_member_may_describe(made: Groups) -> None:
    pytest.importorskip("re2")

    def no_u(operation: str, kind: str, name: str) -> bool:
        return (operation, kind, name) == ("Describe", "Topic", "u")

    request = first()
    request.subscribed_topic_names, request.subscribed_topic_regex = None, "t|u"
    assert not made.ask(request, denied=no_u).assignment.topic_partitions, "its topics come later"
    made.runtime.run_turn()
    assigned = made.ask(later(epoch=1), denied=no_u).assignment
    assert [each.topic_id for each in assigned.topic_partitions] == [made.image.topics["t"].topic_id]
    assert shard_of(made).groups["g"].regexes["t|u"].topics == ("t",)


def test_groups_are_described_each_by_its_own_right(made: Groups) -> None:
    made.ask(first())

    def no_group(operation: str, kind: str, name: str) -> bool:
        return (kind, name) == ("Group", "g")

    def no_topic(operation: str, kind: str, name: str) -> bool:
        return (kind, name) == ("Topic", "t")

    request = ConsumerGroupDescribeRequest(group_ids=["x", "g", ""])
    codes = [group.error_code for group in made.ask(request).groups]
    assert codes == [ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.NONE, ErrorCode.INVALID_GROUP_ID]
    codes = [group.error_code for group in made.ask(request, denied=no_group).groups]
    assert codes[:2] == [ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.GROUP_AUTHORIZATION_FAILED]
    (_, hidden, _) = made.ask(request, denied=no_topic).groups
    assert hidden.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert not hidden.members


def test_topics_that_are_gone_are_left_out_of_a_description(made: Groups) -> None:
    made.ask(first(topics=("t", "u")))
    del made.image.topics["t"]
    (group,) = made.ask(ConsumerGroupDescribeRequest(group_ids=["g"])).groups
    assert [t.topic_name for t in group.members[0].assignment.topic_partitions] == ["u"]


def test_nothing_new_is_answered_without_a_record_a_draft_or_a_hash(
    made: Groups,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made.ask(first())
    made.ask(later())
    shard = shard_of(made)
    monkeypatch.setattr(subscriptions, "metadata_hash", None)
    monkeypatch.setattr(type(shard.groups["g"]), "draft", None)
    decision = shard.command(later(), FakeContext(68, 1), 0)
    assert not decision.records
    assert [order.key for order in decision.timers] == [("session", "g", "m")]


def test_topics_are_looked_at_again_when_the_image_has_changed_and_only_then(made: Groups) -> None:
    made.ask(first())
    made.image.topics["t"] = topic("t", 6)
    assert made.ask(later()).member_epoch == 2
    made.image.features_epoch += 1
    grown = made.ask(later())
    assert grown.member_epoch == 3
    assert [t.partitions for t in grown.assignment.topic_partitions] == [[0, 1, 2, 3, 4, 5]]
    made.image.features_epoch += 1
    assert made.ask(later(epoch=3)).member_epoch == 3


def test_the_rack_of_a_broker_is_part_of_what_is_known_of_topics(made: Groups) -> None:
    made.ask(first())
    made.image.brokers[1] = BrokerImage(broker_id=1, epoch=1, incarnation_id=b"", endpoints=(), rack="r")
    made.image.features_epoch += 1
    assert made.ask(later()).member_epoch == 3


def test_every_record_is_one_that_a_replay_understands(made: Groups) -> None:
    made.ask(first())
    made.ask(first("n"))
    made.ask(later("n", -1))
    numbers = [
        decoded_record[0] for item in made.log.items if (decoded_record := decode_record(RECORD_TYPES, item))
    ]
    assert numbers == [5, 3, 7, 6, 8, 5, 3, 7, 7, 6, 8, 8, 7, 5, 3]


def test_a_target_that_was_missing_when_a_shard_is_loaded_is_computed_at_once(made: Groups) -> None:
    made.ask(first())
    made.ask(first("n"))
    made.ask(later("n", -1))
    assert shard_of(made).groups["g"].target_epoch == 3
    made.reload()
    made.runtime.advance(1)
    assert shard_of(made).groups["g"].target_epoch == 4


def test_a_tombstone_of_what_is_not_there_makes_no_group(made: Groups) -> None:
    made.ask(first())
    made.ask(later("m", -1))
    ended = shard_of(made).delete("g")
    made.log.items += ended.records
    made.reload()
    assert not shard_of(made).groups


# Settings


def settings(image: FakeImage, **config: int) -> GroupSettings:
    keys = {f"group.consumer.{name.replace('_', '.')}": value for name, value in config.items()}
    return GroupSettings(BrokerConfig({"node.id": 1, **keys}), lambda: image)


@pytest.mark.parametrize("epoch", [-1, 1])
def test_a_groups_own_setting_beats_the_brokers_and_keeps_to_its_bounds(epoch: int) -> None:
    image = FakeImage()
    image.features_epoch = epoch
    group_settings = settings(image, assignment_interval_ms=700)
    assert group_settings.assignment_interval_ms("g") == 700
    key = "group.consumer.assignment.interval.ms"

    def now(resource: tuple[int, str], **values: str) -> int:
        image.configs[resource] = {name.replace("_", "."): value for name, value in values.items()}
        image.features_epoch += 0 if epoch < 0 else 1
        return group_settings.assignment_interval_ms("g")

    image.configs[BROKER_RESOURCE, ""] = {key: "800"}
    assert now((BROKER_RESOURCE, "2"), x="1") == 800
    image.configs[BROKER_RESOURCE, "1"] = {key: "900"}
    assert now((BROKER_RESOURCE, "2"), x="1") == 900
    assert now((GROUP_RESOURCE, "h"), consumer_assignment_interval_ms="1") == 900
    assert now((GROUP_RESOURCE, "g"), consumer_assignment_interval_ms="5000") == 5000
    assert now((GROUP_RESOURCE, "g"), consumer_assignment_interval_ms="99999") == 15_000
    assert now((GROUP_RESOURCE, "g"), consumer_session_timeout_ms="1") == 900
    assert group_settings.session_timeout_ms("g") == 45_000
    assert group_settings.heartbeat_interval_ms("g") == 5_000
