"""Offsets that nobody uses are forgotten after ``offsets.retention.minutes``, and empty groups with them."""

from __future__ import annotations

from typing import Any

import pytest

from blumfeld.coordinator.groups.offset_expiry import is_expired
from blumfeld.coordinator.groups.offsets import CommittedOffset, offset_record
from blumfeld.coordinator.groups.shard import EXPIRED_RECORDS_MAX
from blumfeld.spi.groups import SINCE_COMMIT
from blumfeld.wire.codec import encode
from blumfeld.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from blumfeld.wire.messages.heartbeat import HeartbeatRequest
from blumfeld.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from blumfeld.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from blumfeld.wire.messages.sync_group import SyncGroupRequest
from tests.broker.handlers.groups.test_group_handlers import listed
from tests.coordinator.fakes import FakeLog
from tests.coordinator.groups.test_offsets import commit, fetch
from tests.coordinator.groups_fixture import Groups

MINUTE_MS = 60_000
CHECK_MS = 10_000
CONFIG = {"offsets.retention.minutes": 1, "offsets.retention.check.interval.ms": CHECK_MS}


def pass_by(groups: Groups, ms: int, *, beating: bool = False) -> None:
    """Time passes; ``beating`` keeps the member ``client-1`` of group ``g`` alive."""
    for _ in range(ms // 5_000):
        groups.runtime.advance(5_000)
        if beating:
            request = HeartbeatRequest(group_id="g", generation_id=1, member_id="client-1")
            assert groups.ask(request, 3).error_code == 0


def stable(groups: Groups, *topics: str, protocol_type: str = "consumer") -> None:
    """One member, ``client-1``, in a stable group ``g``, who reads these topics."""
    subscription = encode(ConsumerProtocolSubscription(topics=list(topics)), 0)
    join = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type=protocol_type,
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\0\0" + subscription)],
    )
    assert groups.ask(join, 3).member_id == "client-1"
    sync = SyncGroupRequest(group_id="g", generation_id=1, member_id="client-1")
    assert groups.ask(sync, 3).error_code == 0


def member_commits(groups: Groups, **fields: Any) -> None:
    commit(groups, member_id="client-1", generation_id_or_member_epoch=1, **fields)


@pytest.fixture
def groups() -> Groups:
    return Groups(CONFIG)


def test_a_simple_groups_offsets_age_from_their_commits(groups: Groups) -> None:
    commit(groups)
    pass_by(groups, MINUTE_MS // 2)
    commit(groups, partition=1)
    pass_by(groups, MINUTE_MS // 2 - CHECK_MS)
    assert len(fetch(groups)) == 2
    pass_by(groups, CHECK_MS)
    assert list(fetch(groups)) == [("t", 1)]
    pass_by(groups, MINUTE_MS // 2)
    assert listed(groups) == []
    groups.reload()
    assert fetch(groups) == {}


def test_a_groups_offsets_age_from_when_it_became_empty(groups: Groups) -> None:
    stable(groups, "t")
    member_commits(groups)
    pass_by(groups, 3 * MINUTE_MS, beating=True)
    groups.ask(LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="client-1")]))
    pass_by(groups, MINUTE_MS - CHECK_MS)
    groups.reload()
    assert list(fetch(groups)) == [("t", 0)]
    pass_by(groups, 2 * CHECK_MS)
    assert fetch(groups) == {}
    groups.reload()
    assert listed(groups) == []


def test_in_a_stable_group_what_nobody_reads_any_more_expires(groups: Groups) -> None:
    stable(groups, "t")
    member_commits(groups)
    member_commits(groups, topic="u")
    pass_by(groups, 2 * MINUTE_MS, beating=True)
    assert list(fetch(groups)) == [("t", 0)]


def test_where_nobody_knows_what_members_read_nothing_expires(groups: Groups) -> None:
    stable(groups, "t", protocol_type="connect")
    member_commits(groups)
    pass_by(groups, 2 * MINUTE_MS, beating=True)
    assert list(fetch(groups)) == [("t", 0)]


def test_an_empty_group_without_offsets_goes_with_the_next_check(groups: Groups) -> None:
    stable(groups, "t")
    groups.ask(LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="client-1")]))
    assert listed(groups) == [("g", "Empty", "classic")]
    pass_by(groups, CHECK_MS)
    assert listed(groups) == []
    assert groups.log.items[-1].value is None


def test_a_check_that_finds_nothing_writes_nothing(groups: Groups) -> None:
    commit(groups)
    written = len(groups.log.items)
    pass_by(groups, MINUTE_MS - CHECK_MS)
    assert len(groups.log.items) == written


def test_very_many_expire_in_several_batches() -> None:
    """One batch has to fit into a segment, and a turn must end."""
    old = CommittedOffset(1, 0, "", 0, -1, bytes(16))
    count = EXPIRED_RECORDS_MAX + 1
    groups = Groups(CONFIG, log=FakeLog([offset_record(f"g{n}", "t", 0, old) for n in range(count)]))
    groups.runtime.run_turn()
    groups.runtime.advance(CHECK_MS)
    groups.runtime.run_turn()
    assert [len(batch) for batch in groups.log.batches] == [EXPIRED_RECORDS_MAX, EXPIRED_RECORDS_MAX, 2], (
        "two each: the offset, and the group, which had nothing else"
    )
    assert listed(groups) == []


@pytest.mark.parametrize(
    ("expire_ms", "idle_since_ms", "now_ms", "expired"),
    [
        pytest.param(-1, SINCE_COMMIT, 1_099, False, id="kept"),
        pytest.param(-1, SINCE_COMMIT, 1_100, True, id="since its commit"),
        pytest.param(-1, 1_050, 1_149, False, id="the group was used"),
        pytest.param(-1, 1_050, 1_150, True, id="since the group is empty"),
        pytest.param(1_500, SINCE_COMMIT, 1_499, False, id="longer by its own retention"),
        pytest.param(1_010, 1_050, 1_010, True, id="shorter by its own retention"),
    ],
)
def test_when_an_offset_expires(expire_ms: int, idle_since_ms: int, now_ms: int, expired: bool) -> None:
    """Committed at 1000, kept for 100 ms."""
    committed = CommittedOffset(1, 0, "", 1_000, expire_ms, bytes(16))
    assert is_expired(committed, idle_since_ms, 100, now_ms) is expired


def test_many_offsets_are_looked_at_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """A million of them would hold up all other work for seconds; all are looked at in the end, each once."""
    monkeypatch.setattr("blumfeld.coordinator.groups.shard.EXPIRY_SLICE_OFFSETS", 3)
    groups = Groups(CONFIG)
    for number in range(20):
        commit(groups, group_id=f"g{number}", offset=number)
    placed = len(groups.log.batches)
    groups.runtime.advance(MINUTE_MS + CHECK_MS)
    assert listed(groups) == []
    batches = groups.log.batches[placed:]
    assert sum(map(len, batches)) == 40, "each offset, and its group"
    assert max(map(len, batches)) == 4
