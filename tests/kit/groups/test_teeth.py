"""The kit for group types bites: each of these types breaks one promise, and the kit's test of it fails."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from blumfeld.coordinator.groups.records import record
from blumfeld.spi.groups import CommitCheck, CoordinatorRecord, Decision, GroupExport, GroupSummary
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages import group_coordinator_records as log
from blumfeld.wire.messages.describe_groups import DescribedGroup
from blumfeld.wire.messages.heartbeat import HeartbeatResponse
from blumfeld.wire.messages.offset_commit import OffsetCommitRequest
from blumfeld_groups_classic.shard import ClassicGroups
from blumfeld_groups_kip848.edit import Edit
from blumfeld_groups_kip848.group import ConsumerGroup
from blumfeld_groups_kip848.protocol import ConsumerGroupProtocol
from blumfeld_groups_kip848.shard import ConsumerGroups
from blumfeld_kit import GroupProtocolContract
from blumfeld_kit.groups.contract import GROUP
from tests.plugins.groups_both.test_contract import TestClassic as OfClassic
from tests.plugins.groups_both.test_contract import TestConsumer as OfConsumer

Wrong = Callable[..., Any]
"""Stands in place of a method; it is handed the right one first."""


def command_that_writes(right: Wrong, shard: ConsumerGroups, *arguments: Any) -> Decision:
    decision: Decision = right(shard, *arguments)
    for group in shard.groups.values():
        group.target_time_ms += 1
    return decision


def refusal_that_writes(right: Wrong, shard: ConsumerGroups, *arguments: Any) -> Decision:
    try:
        decision: Decision = right(shard, *arguments)
    except BrokerError:
        for group in shard.groups.values():
            group.epoch += 1
        raise
    return decision


def replay_that_looks_around(right: Wrong, shard: ConsumerGroups, number: int, key: Any, value: Any) -> None:
    right(shard, number, key, value)
    group = shard.groups.get(key.group_id)
    if group is not None:
        group.target_time_ms = shard.surroundings.now_ms  # type: ignore[attr-defined]


def replay_in_one_order_only(right: Wrong, shard: ConsumerGroups, number: int, key: Any, value: Any) -> None:
    group = shard.groups.get(key.group_id)
    if number == 8 and (group is None or key.member_id not in group.members):
        return
    right(shard, number, key, value)


def replay_that_counts(right: Wrong, shard: ConsumerGroups, number: int, key: Any, value: Any) -> None:
    right(shard, number, key, value)
    group = shard.groups.get(key.group_id)
    if number == 6 and group is not None:
        group.target_time_ms += group.target_epoch
        group.target_epoch += len(group.targets)
        group.regexes[f"{len(group.regexes)}"] = None  # type: ignore[assignment]


def replay_that_makes_groups(right: Wrong, shard: ConsumerGroups, number: int, key: Any, value: Any) -> None:
    right(shard, number, key, value)
    shard.groups.setdefault(key.group_id, ConsumerGroup(key.group_id))


counter = itertools.count()


def epoch_by_chance(right: Wrong, edit: Edit, epoch: int, metadata_hash: int) -> None:
    right(edit, epoch, next(counter))


def records_of_another(right: Wrong, shard: ConsumerGroups, *arguments: Any) -> Decision:
    decision: Decision = right(shard, *arguments)
    decision.records = [*decision.records, record(log.GroupMetadataKey(group=GROUP), None)]
    return decision


def summaries_of_nothing(right: Wrong, shard: ConsumerGroups) -> list[GroupSummary]:
    return []


def summaries_of_another_type(right: Wrong, shard: ConsumerGroups) -> list[GroupSummary]:
    return [replace(summary, group_type="mine") for summary in right(shard)]


def owns_everything(right: Wrong, shard: ConsumerGroups, group_id: str) -> bool:
    return True


def never_empty(right: Wrong, shard: ConsumerGroups, group_id: str) -> bool:
    return False


def describes_strangers(right: Wrong, shard: ConsumerGroups, group_id: str) -> DescribedGroup:
    return DescribedGroup(group_id=group_id)


def commit_with_an_error_of_its_own(right: Wrong, shard: ConsumerGroups, *arguments: Any) -> Decision:
    raise BrokerError(ErrorCode.INVALID_REQUEST)


def commit_that_writes(right: Wrong, shard: ConsumerGroups, commit: CommitCheck, now_ms: int) -> Decision:
    return Decision(records=[record(log.ConsumerGroupMetadataKey(group_id=commit.group_id), None)])


def commit_by_anyone(right: Wrong, shard: ConsumerGroups, *arguments: Any) -> Decision:
    return Decision()


def fetch_with_an_error_of_its_own(right: Wrong, shard: ConsumerGroups, *arguments: Any) -> None:
    raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND)


def offsets_of_nobody_kept(right: Wrong, shard: ConsumerGroups, group_id: str) -> None:
    raise BrokerError(ErrorCode.NON_EMPTY_GROUP)


def reads_all(right: Wrong, shard: ConsumerGroups, group_id: str, topic: str) -> bool:
    return True


def idle_in_the_future(right: Wrong, shard: ConsumerGroups, group_id: str) -> int:
    return 1 << 60


def delete_of_the_group_only(right: Wrong, shard: ConsumerGroups, group_id: str) -> Decision:
    return Decision(records=[record(log.ConsumerGroupMetadataKey(group_id=group_id), None)])


def delete_that_leaves_a_note(right: Wrong, shard: ConsumerGroups, group_id: str) -> Decision:
    decision: Decision = right(shard, group_id)
    key, value = (
        log.ConsumerGroupRegularExpressionKey(group_id=group_id),
        log.ConsumerGroupRegularExpressionValue(),
    )
    decision.records = [record(key, value), *decision.records]
    return decision


def delete_of_nothing(right: Wrong, shard: ConsumerGroups, group_id: str) -> Decision:
    return Decision()


def timer_that_revives(right: Wrong, shard: ConsumerGroups, expired: Any, now_ms: int) -> Decision:
    edit = Edit(shard.groups.get(expired.group_id) or ConsumerGroup(expired.group_id), now_ms)
    edit.put_epoch(edit.group.epoch + 1, 0)
    return edit.decision()


def loaded_without_timers(right: Wrong, shard: ConsumerGroups, now_ms: int) -> Decision:
    return Decision()


def answers_everything(right: Wrong, shard: ConsumerGroups, request: Any, *rest: Any) -> Decision:
    if isinstance(request, OffsetCommitRequest):
        return Decision(reply=HeartbeatResponse())
    decision: Decision = right(shard, request, *rest)
    return decision


def knows_its_groups_only(right: Wrong, shard: ConsumerGroups, request: Any, *rest: Any) -> Decision:
    assert getattr(request, "group_id", GROUP) in (GROUP, ""), "another group"
    if getattr(request, "group_id", GROUP) == "":
        raise KeyError(request.group_id)
    decision: Decision = right(shard, request, *rest)
    return decision


def error_without_a_code(right: Wrong, protocol: ConsumerGroupProtocol, *arguments: Any) -> Any:
    response = right(protocol, *arguments)
    response.error_code = 0
    return response


def error_of_another_api(right: Wrong, protocol: ConsumerGroupProtocol, *arguments: Any) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=arguments[1])


def import_that_loses(right: Wrong, shard: ClassicGroups, group: GroupExport, now_ms: int) -> Decision:
    decision: Decision = right(shard, replace(group, members=group.members[1:]), now_ms)
    return decision


def import_that_goes_back(right: Wrong, shard: ClassicGroups, group: GroupExport, now_ms: int) -> Decision:
    decision: Decision = right(shard, replace(group, generation=0), now_ms)
    return decision


def import_of_another_type(right: Wrong, shard: ClassicGroups, group: GroupExport, now_ms: int) -> Decision:
    return Decision(records=[CoordinatorRecord(b"\0\x03\0\x01g", None)])


CONSUMER: list[tuple[str, type[Any], str, Wrong]] = [
    ("commands_write_no_state", ConsumerGroups, "command", command_that_writes),
    ("commands_write_no_state", ConsumerGroups, "command", refusal_that_writes),
    ("the_log_tells_all", ConsumerGroups, "replay", replay_that_looks_around),
    ("a_compacted_log_tells_all", ConsumerGroups, "replay", replay_in_one_order_only),
    ("a_record_twice_is_a_record_once", ConsumerGroups, "replay", replay_that_counts),
    ("tombstones_of_nothing_do_nothing", ConsumerGroups, "replay", replay_that_makes_groups),
    ("the_same_requests_give_the_same_log", Edit, "put_epoch", epoch_by_chance),
    ("records_are_of_its_own_types", ConsumerGroups, "command", records_of_another),
    ("owns_summaries_and_describe_agree", ConsumerGroups, "summaries", summaries_of_nothing),
    ("owns_summaries_and_describe_agree", ConsumerGroups, "summaries", summaries_of_another_type),
    ("owns_summaries_and_describe_agree", ConsumerGroups, "owns", owns_everything),
    ("owns_summaries_and_describe_agree", ConsumerGroups, "is_empty", never_empty),
    ("owns_summaries_and_describe_agree", ConsumerGroups, "describe", describes_strangers),
    *(
        ("asking_after_offsets_changes_nothing_and_fails_as_it_may", ConsumerGroups, name, wrong)
        for name, wrong in (
            ("check_commit", commit_with_an_error_of_its_own),
            ("check_commit", commit_that_writes),
            ("check_commit", commit_by_anyone),
            ("check_fetch", fetch_with_an_error_of_its_own),
            ("check_delete_offsets", offsets_of_nobody_kept),
            ("is_subscribed", reads_all),
            ("offsets_idle_since", idle_in_the_future),
        )
    ),
    ("delete_leaves_tombstones_and_nothing_else", ConsumerGroups, "delete", delete_of_the_group_only),
    ("delete_leaves_tombstones_and_nothing_else", ConsumerGroups, "delete", delete_that_leaves_a_note),
    ("delete_leaves_tombstones_and_nothing_else", ConsumerGroups, "delete", delete_of_nothing),
    ("timers_of_a_group_that_is_gone_are_harmless", ConsumerGroups, "_expired", timer_that_revives),
    ("silent_members_are_gone_in_the_end", ConsumerGroups, "loaded", loaded_without_timers),
    ("unknown_requests_are_refused", ConsumerGroups, "command", answers_everything),
    (
        "empty_requests_of_every_version_are_answered_or_refused",
        ConsumerGroups,
        "command",
        knows_its_groups_only,
    ),
    ("errors_are_answered_in_every_version", ConsumerGroupProtocol, "error_response", error_without_a_code),
    ("errors_are_answered_in_every_version", ConsumerGroupProtocol, "error_response", error_of_another_api),
]
CLASSIC: list[tuple[str, type[Any], str, Wrong]] = [
    ("what_is_exported_can_be_imported", ClassicGroups, "import_group", import_that_loses),
    ("what_is_exported_can_be_imported", ClassicGroups, "import_group", import_that_goes_back),
    ("what_is_exported_can_be_imported", ClassicGroups, "import_group", import_of_another_type),
]
BITTEN = (AssertionError, pytest.fail.Exception, KeyError)


@pytest.mark.parametrize(
    ("kit", "test", "kind", "name", "wrong"),
    [*((OfConsumer, *case) for case in CONSUMER), *((OfClassic, *case) for case in CLASSIC)],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_broken_type_is_caught(
    monkeypatch: pytest.MonkeyPatch,
    kit: type[GroupProtocolContract],
    test: str,
    kind: type[Any],
    name: str,
    wrong: Wrong,
) -> None:
    """The test passes with the right method, which the contract's own run shows, and fails with the wrong one."""
    right = getattr(kind, name)
    monkeypatch.setattr(kind, name, lambda *arguments: wrong(right, *arguments))
    with pytest.raises(BITTEN):
        getattr(kit(), f"test_{test}")()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("name", ""),
        ("record_types", {1: (log.OffsetCommitKey, log.OffsetCommitValue)}),
        ("record_types", {5: (log.ConsumerGroupMetadataKey, log.ConsumerGroupMetadataValue)}),
        ("apis", {999: (0, 1)}),
        ("apis", {68: (1, 0)}),
        ("guest_apis", frozenset((68,))),
    ],
)
def test_wrong_facts_are_caught(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str | Mapping[int, Any] | frozenset[int]
) -> None:
    """A type without a name, with another's records, with APIs that there are none of."""
    monkeypatch.setattr(ConsumerGroupProtocol, name, value)
    with pytest.raises(AssertionError):
        OfConsumer().test_its_facts_are_in_order()


class Idle(OfConsumer):
    """A subclass that forgot to write down what its groups live through."""

    def life(self, group: Any) -> None:
        """Nothing."""


def test_a_life_without_members_is_caught() -> None:
    """It would pass every other test."""
    with pytest.raises((AssertionError, IndexError)):
        Idle().test_the_life_has_members_and_ends_without()


def test_every_test_of_the_kit_has_a_type_that_it_catches() -> None:
    """One that can't fail is none."""
    tests = {name.removeprefix("test_") for name in vars(GroupProtocolContract) if name.startswith("test_")}
    bitten = {case[0] for case in [*CONSUMER, *CLASSIC]}
    assert tests - bitten == {"its_facts_are_in_order", "the_life_has_members_and_ends_without"}
