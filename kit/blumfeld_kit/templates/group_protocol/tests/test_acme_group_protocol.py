"""The contract of every group protocol, and what makes this one yours."""

from __future__ import annotations

from typing import Any

from blumfeld.spi.groups import GroupProtocol
from blumfeld.wire.messages.heartbeat import HeartbeatRequest
from blumfeld.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from blumfeld.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from blumfeld.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from blumfeld_kit import GroupProtocolContract
from blumfeld_kit.groups import GROUP, GroupUnderTest

from acme_group_protocol import AcmeGroupProtocol

SESSION_MS = 10_000


def join(group: GroupUnderTest, member_id: str = "") -> Any:
    """Have a member join, and return the answer."""
    request = JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=SESSION_MS,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"topics")],
    )
    return group.ask(request).result()


class TestAcmeGroupProtocol(GroupProtocolContract):
    """All that every group protocol must hold, at each step of a group's life."""

    def make_protocol(self) -> GroupProtocol:
        """Return a new one."""
        return AcmeGroupProtocol()

    def life(self, group: GroupUnderTest) -> None:
        """Join, get an assignment, be heard of, join again, leave; join and fall silent. WRITE HERE: whatever else."""
        member = join(group)
        assigned = [SyncGroupRequestAssignment(member_id=member.member_id, assignment=b"all")]
        known = {"group_id": GROUP, "member_id": member.member_id, "generation_id": member.generation_id}
        group.ask(SyncGroupRequest(**known, assignments=assigned))
        group.ask(HeartbeatRequest(**known))
        join(group, member.member_id)
        leaving = [MemberIdentity(member_id=member.member_id)]
        group.ask(LeaveGroupRequest(group_id=GROUP, members=leaving))
        join(group)
        group.wait(SESSION_MS)


def test_a_second_member_is_let_in() -> None:
    """RED UNTIL YOU WRITE IT. Say here what becomes of a group with two members."""
    group = GroupUnderTest(AcmeGroupProtocol(), {})
    join(group)
    assert join(group).error_code == 0
