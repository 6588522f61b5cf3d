"""The schema language: versions, fields resolved, defaults, and messages as plain values."""

from __future__ import annotations

import pytest

from blumfeld.wire.messages.fetch import FetchRequest, PartitionData, ReplicaState
from blumfeld.wire.messages.leave_group import LeaveGroupRequest
from blumfeld.wire.schema import NEVER, Versions, camel_case, fields_of
from tests.wire.schema_strategies import every_version


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [("3", [3], [2, 4]), ("0-4", [0, 4], [5, -1]), ("3+", [3, 99], [2]), ("none", [], [0, NEVER])],
)
def test_versions_are_kafkas_notation(text: str, inside: list[int], outside: list[int]) -> None:
    versions = Versions.of(text)
    assert str(versions) == text
    assert all(v in versions for v in inside)
    assert not any(v in versions for v in outside)


def test_a_field_knows_its_versions_tag_and_struct() -> None:
    by_name = {f.name: f for f in fields_of(FetchRequest)}
    state = by_name["replica_state"]
    assert (state.tag, state.type.struct, 14 in state.versions, 15 in state.tagged) == (
        1,
        ReplicaState,
        False,
        True,
    )
    assert by_name["topics"].type.array
    assert by_name["session_epoch"].default == -1
    assert fields_of(FetchRequest) is fields_of(FetchRequest)


def test_defaults_are_kafkas_and_fresh() -> None:
    assert FetchRequest().max_bytes == 2**31 - 1
    assert PartitionData().diverging_epoch.end_offset == -1
    assert PartitionData().diverging_epoch is not PartitionData().diverging_epoch
    assert LeaveGroupRequest().members is not LeaveGroupRequest().members


def test_messages_compare_by_value_and_can_be_changed() -> None:
    first_request, other = FetchRequest(), FetchRequest()
    assert first_request == other
    other.session_id = 4
    assert first_request != other


def test_names_of_the_json_form_come_from_the_fields() -> None:
    assert camel_case("throttle_time_ms") == "throttleTimeMs"


def test_every_messages_tags_are_unique_and_only_in_flexible_versions() -> None:
    for cls, version in every_version():
        tags = [f.tag for f in fields_of(cls) if version in f.tagged]
        assert len(tags) == len(set(tags))
        assert not tags or version in cls.meta.flexible
