"""Classic groups under members that come, go, die and forget, in an order that a seed decides."""

from __future__ import annotations

import random
from typing import Any

import attrs
import pytest

from blumfeld.coordinator.groups.shard import GroupsShard
from blumfeld.spi.completion import Completion
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.heartbeat import HeartbeatRequest
from blumfeld.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from blumfeld.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from blumfeld.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from blumfeld_groups_classic.group import Group, State
from blumfeld_groups_classic.shard import ClassicGroups
from tests.coordinator.fakes import FakeContext, FakeLog
from tests.coordinator.groups_fixture import Groups
from tests.everyday import first

GROUP = "g"
MEMBERS = 5
STEPS = 250
LONGEST_WAIT_MS = 1_900_000
"""No timer of a classic group runs for longer."""


@attrs.define
class Member:
    """A client that does the right thing with every answer, if it does anything."""

    name: str
    instance: str | None = None
    member_id: str = ""
    generation: int = -1
    protocol: str | None = None
    members: list[str] = attrs.field(factory=list)
    leads: bool = False
    state: str = "out"
    """``out``, ``joining``, ``joined``, ``syncing``, ``stable``."""
    turn: int = 0
    """Answers to what was sent before it forgot everything are not for it any more."""


class World:
    """The members, the shard, and what must be true of them at any time."""

    def __init__(self, seed: int, *, static: bool = False) -> None:
        self.random = random.Random(seed)
        delay_ms = self.random.choice([0, 3000])
        self.groups = Groups({"group.initial.rebalance.delay.ms": delay_ms}, log=FakeLog(hold=True))
        self.members = [Member(f"m{n}", f"i{n}" if static and n % 2 else None) for n in range(MEMBERS)]
        self.sent: list[Completion[Any]] = []
        self.told: dict[tuple[int, int], tuple[str, str]] = {}
        """(which life of the shard, generation) → leader and protocol. No record tells of a generation that is not
        assigned yet: a rebuilt shard may give it again.
        """
        self.leaders: dict[tuple[int, int], set[str]] = {}
        self.newest = (0, -1)
        self.static = static

    # What members do

    def step(self) -> None:
        """Something happens."""
        member = self.random.choice(self.members)
        act = self.random.choices(
            [self.go_on, self.beat, self.rejoin, self.leave, self.die, self.wait, self.commit],
            [40, 15, 10, 5, 5, 15, 30],
        )[0]
        act(member)
        self.check_replayed()

    def go_on(self, member: Member) -> None:
        """The next request of its course."""
        if member.state == "out":
            self.join(member)
        elif member.state == "joined":
            self.sync(member)

    def join(self, member: Member) -> None:
        member.state = "joining"
        names = self.random.sample(["range", "sticky", "roundrobin"], self.random.randrange(3))
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=self.random.choice([6_000, 10_000, 30_000]),
            rebalance_timeout_ms=self.random.choice([5_000, 60_000]),
            member_id=member.member_id,
            group_instance_id=member.instance,
            protocol_type="consumer",
            protocols=[
                JoinGroupRequestProtocol(name=n, metadata=member.name.encode()) for n in [*names, "all"]
            ],
        )
        version = 9 if member.instance else self.random.choice([3, 9])
        self.send(member, request, version, self.joined)

    def joined(self, member: Member, response: Any) -> None:
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            member.member_id = response.member_id
            self.join(member)
        elif response.error_code:
            self.lost(member, response.error_code)
        else:
            self.check_generation(response)
            member.member_id, member.generation = response.member_id, response.generation_id
            member.members = [m.member_id for m in response.members]
            member.protocol = response.protocol_name
            member.leads = response.leader == response.member_id
            member.state = "joined"

    def sync(self, member: Member) -> None:
        member.state = "syncing"
        given = {m: f"{member.generation}/{m}".encode() for m in member.members} if member.leads else {}
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=member.generation,
            member_id=member.member_id,
            group_instance_id=member.instance,
            protocol_type="consumer",
            protocol_name=member.protocol,
            assignments=[SyncGroupRequestAssignment(member_id=m, assignment=a) for m, a in given.items()],
        )
        self.send(member, request, 5, self.synced)

    def synced(self, member: Member, response: Any) -> None:
        if response.error_code:
            self.lost(member, response.error_code)
            return
        member.state = "stable"
        if not self.static:
            assert response.assignment == f"{member.generation}/{member.member_id}".encode()

    def lost(self, member: Member, code: int) -> None:
        member.state = "out"
        if code not in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.NOT_COORDINATOR):
            member.member_id, member.generation = "", -1

    def beat(self, member: Member) -> None:
        """A heartbeat of one who has a generation."""
        if member.state not in ("joined", "stable"):
            return
        request = HeartbeatRequest(
            group_id=GROUP,
            generation_id=member.generation,
            member_id=member.member_id,
            group_instance_id=member.instance,
        )

        def answered(_: Member, response: Any) -> None:
            if response.error_code:
                self.lost(member, response.error_code)

        self.send(member, request, 4, answered)

    def rejoin(self, member: Member) -> None:
        """It wants a rebalance, in whatever state."""
        if member.state in ("joined", "stable"):
            self.join(member)

    def leave(self, member: Member) -> None:
        """It says goodbye; static ones don't."""
        if member.member_id and member.instance is None:
            request = LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id=member.member_id)])
            self.send(member, request, 5, lambda *_: None)
            self.die(member)

    def die(self, member: Member) -> None:
        """It starts again, and remembers nothing."""
        member.turn += 1
        member.state, member.member_id, member.generation = "out", "", -1

    def wait(self, _: Member) -> None:
        """Time passes."""
        self.groups.runtime.advance(self.random.choice([1, 500, 3_000, 7_000]))

    def commit(self, _: Member) -> None:
        """The high watermark moves."""
        self.groups.log.commit()

    def send(self, member: Member, request: Any, version: int, answered: Any) -> None:
        turn = member.turn
        sent = self.groups.send(request, version, client_id=member.name)
        self.sent.append(sent)

        def settle(done: Completion[Any]) -> None:
            if member.turn == turn:
                answered(member, done.result())

        sent.when_done(settle)

    # What must be true

    @property
    def group(self) -> Group | None:
        """The group as the shard has it."""
        return classic(self.groups.shard).groups.get(GROUP)

    def check_generation(self, response: Any) -> None:
        """One generation has one leader and one protocol; generations only grow."""
        generation = (len(self.groups.shards), response.generation_id)
        seen = self.told.setdefault(generation, (response.leader, response.protocol_name))
        assert seen[1] == response.protocol_name
        if not self.static:  # a static leader that starts again leads under a new id
            assert seen[0] == response.leader
        if response.members:
            assert response.leader == response.member_id
            self.leaders.setdefault(generation, set()).add(response.member_id)
            assert self.static or len(self.leaders[generation]) == 1
        assert generation >= self.newest or generation in self.told
        self.newest = max(self.newest, generation)

    def check_replayed(self) -> None:
        """Whenever no rebalance is in flight, the log alone gives the same group."""
        group = self.group
        if group is not None and group.persisted and group.state in (State.STABLE, State.EMPTY):
            loaded = self.groups._new_shard(0)
            self.groups.shards.pop()
            for item in self.groups.log.items:
                loaded.replay(item)
            assert kept(classic(loaded).groups[GROUP]) == kept(group)


def classic(shard: GroupsShard) -> ClassicGroups:
    """The classic groups of a shard."""
    found = shard._types["classic"]
    assert isinstance(found, ClassicGroups)
    return found


def kept(group: Group) -> tuple[Any, ...]:
    """What the log says of a group."""
    members = [
        (m.member_id, m.instance_id, m.client_id, m.session_timeout_ms, m.rebalance_timeout_ms, m.assignment)
        for m in group.members.values()
    ]
    return group.state, group.generation, group.protocol_type, group.protocol_name, group.leader_id, members


@pytest.mark.parametrize("seed", first(8, range(24)))
@pytest.mark.parametrize("static", [False, True], ids=["dynamic", "static"])
def test_members_agree_whatever_happens(seed: int, static: bool) -> None:
    """And once everyone is silent, every request has its answer, and the group is empty."""
    world = World(seed, static=static)
    for _ in range(STEPS):
        world.step()
    assert world.told, "members got somewhere"
    for member in world.members:
        world.die(member)
    for _ in range(4):
        world.groups.runtime.advance(LONGEST_WAIT_MS)
        world.groups.log.commit()
    assert all(sent.done for sent in world.sent)
    assert world.group is None or world.group.state is State.EMPTY
    world.check_replayed()


@pytest.mark.parametrize("seed", first(3, range(8)))
def test_members_come_together_once_nothing_happens_any_more(seed: int) -> None:
    """After any history: those who go on with their course all end in one stable generation."""
    world = World(seed)
    for _ in range(STEPS):
        world.step()
    for _ in range(60):
        world.groups.log.commit()
        world.groups.runtime.advance(1_000)
        for member in world.members:
            world.beat(member)
            world.go_on(member)
    world.groups.log.commit()
    assert world.group is not None
    assert world.group.state is State.STABLE
    assert {member.state for member in world.members} == {"stable"}
    assert {member.generation for member in world.members} == {world.group.generation}


@pytest.mark.parametrize("code", [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_ENOUGH_REPLICAS])
@pytest.mark.parametrize("seed", first(2, range(4)))
def test_failing_appends_lose_no_request(seed: int, code: ErrorCode) -> None:
    """Waiting members get an error, and come together again: after the reload, or without one if nothing was placed."""
    world = World(seed)
    for n in range(STEPS):
        if n % 40 == 39:
            world.groups.log.refuse = code
        member = world.random.choice(world.members)
        world.random.choice([world.go_on, world.beat, world.wait, world.commit, world.rejoin])(member)
    world.groups.log.refuse = None
    for member in world.members:
        world.die(member)
    for _ in range(4):
        world.groups.runtime.advance(LONGEST_WAIT_MS)
        world.groups.log.commit()
    assert all(sent.done for sent in world.sent)
    if code is ErrorCode.NOT_ENOUGH_REPLICAS:
        assert world.groups.coordinator.counts.shards_dropped == 0


def test_the_leaders_word_counts_when_it_is_replayed_and_no_sooner() -> None:
    """Commands decide, records change: until then the group is not stable, and nobody has an assignment."""
    world = World(1)
    member = world.members[0]
    world.join(member)
    world.groups.runtime.advance(3_000)
    group = world.group
    assert group is not None
    before = kept(group)
    request = SyncGroupRequest(
        group_id=GROUP,
        generation_id=1,
        member_id=member.member_id,
        protocol_type="consumer",
        protocol_name=member.protocol,
        assignments=[SyncGroupRequestAssignment(member_id=member.member_id, assignment=b"x")],
    )
    decision = world.groups.shard.command(request, FakeContext(14, 5), 0)
    assert kept(group) == before
    assert group.state is State.COMPLETING
    for item in decision.records:
        world.groups.shard.replay(item)
    assert world.group is not None
    assert world.group.state is State.STABLE
    assert world.group.members[member.member_id].assignment == b"x"
