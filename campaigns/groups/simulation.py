"""Members of a group on virtual time, with everything going wrong: they come, go, die and dawdle, messages are late or
lost, topics come, grow and go, rights on them change, the coordinator is rebuilt from its log, is busy, appends fail.

A run has rounds. Each begins with chaos, and ends in a calm in which everyone must come together.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial

import attrs
from msgspec.structs import replace

from blumfeld.client.classic_group import COOPERATIVE, RANGE
from blumfeld.coordinator.runtime.host import HostState
from blumfeld.spi.completion import Completion
from blumfeld.spi.groups import GroupProtocol
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.delete_groups import DeleteGroupsRequest
from blumfeld.wire.messages.list_groups import ListGroupsRequest
from blumfeld.wire.messages.offset_commit import OffsetCommitRequest
from blumfeld_kit.fakes.loop import SimulationError
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_kit.groups.model import ModelCluster, compacted
from blumfeld_kit.simulation.trace import Trace
from campaigns.groups.classic_member import ClassicMember
from campaigns.groups.consumer_member import ConsumerMember
from campaigns.groups.member import (
    Effect,
    Failed,
    Member,
    MemberSettings,
    Own,
    Partition,
    Send,
    Topic,
    View,
    WakeAt,
)
from campaigns.groups.node import GroupsNode
from campaigns.groups.oracle import Oracle, ViolationError

GROUP = "g"
MODES = ("classic", "consumer", "mixed")
SLOTS = 7
SESSION_MS = 10_000
REBALANCE_MS = 15_000
CHAOS_MS = 45_000
CALM_MS_MAX = 150_000
"""From the end of the faults until all has come together: a few sessions and rebalances, one after the other."""
REFRESH_MS_MAX = 3_000
"""After a change of the cluster each client sees it within this time."""
LARGE = 40
"""Times as many partitions as usual, in some seeds: a coordinator takes its time to deal them."""
REGEX = "t[0-9]+"
CROWD = 1_500
"""Topics that no expression matches, so that a resolution takes several slices."""
LOOK_EVERY = 4
"""The shard is compared with its log after so many requests."""
PASSING = (ErrorCode.UNRELEASED_INSTANCE_ID, ErrorCode.FENCED_INSTANCE_ID)
"""Errors that may end a member that does nothing wrong: its instance id is in use still, or again."""
PASSING_IN_MIGRATION = (*PASSING, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
CONFIG: dict[str, str | int | float | bool] = {
    "group.consumer.min.session.timeout.ms": 5_000,
    "group.consumer.session.timeout.ms": SESSION_MS,
    "group.consumer.min.heartbeat.interval.ms": 1_000,
    "group.consumer.heartbeat.interval.ms": 2_000,
    "group.min.session.timeout.ms": 5_000,
    "group.consumer.regex.refresh.interval.ms": 10_000,
}


@attrs.define(eq=False)
class Client:
    """A process that may run, with its connection."""

    name: str
    instance_id: str | None = None
    protocol: str = ""
    """``consumer``, or a classic assignor."""
    member: Member | None = None
    lives: int = 0
    """Counts its processes, and wake-ups: what was meant for an earlier one is void."""
    wake: int = 0
    up_ms: float = 0.0
    down_ms: float = 0.0
    """Arrival of the newest message in each direction: none overtakes another."""
    lag_ms: int = 0
    """It is far away, for now."""
    leaves: bool = False


class Simulation:
    """One seed. :meth:`run` raises :class:`ViolationError` if a promise is broken."""

    def __init__(self, seed: int, minutes: float, mode: str, protocols: Sequence[GroupProtocol]) -> None:
        self.seed = seed
        self.mode = mode
        self.minutes = minutes
        self.random = random.Random(seed * 7919 + MODES.index(mode))
        self.runtime = FakeRuntime(seed)
        self.cluster = ModelCluster(("a", "b", "c") if self.random.random() < 0.5 else ())
        self.trace = Trace(lambda: self.runtime.monotonic_ms() / 1000)
        self.scale = self.random.choice([1] * 7 + [LARGE])
        self.topics_made = 0
        self.by_regex = self.random.random() < 0.4
        for _ in range(2):
            self.create_topic()
        assignors = self.random.choice(["uniform,range", "range,uniform"])
        config = {
            **CONFIG,
            "group.initial.rebalance.delay.ms": self.random.choice([0, 1_000]),
            "group.consumer.assignment.interval.ms": self.random.choice([0, 1_000]),
            "group.consumer.assignors": assignors,
        }
        self.deals_evenly = mode == "classic" or assignors.startswith("uniform")
        if self.by_regex:
            for n in range(CROWD):
                self.cluster.create(f"x{n}", 1)
        self.node = GroupsNode(protocols, config, runtime=self.runtime, cluster=self.cluster)
        self.delays_ms = self.random.choice([[0], [0, 0, 5, 60], [0, 50, 500, 2_000]])
        """What the slices of long computations wait for while there is chaos."""
        self.oracle = Oracle(self.node, GROUP)
        self.node.log.placed = self.oracle.placed
        self.classic_protocol = self.random.choice([RANGE, COOPERATIVE])
        self.clients = [self._client(n) for n in range(SLOTS)]
        self.chaos = False
        self.requests = 0
        self.events = 0
        self.longest_calm_ms = 0.0
        self._violation: BaseException | None = None

    def _client(self, n: int) -> Client:
        static = f"i{n}" if self.random.random() < 0.3 else None
        return Client(f"m{n}", static, self._protocol())

    def _protocol(self) -> str:
        if self.mode == "mixed":
            return self.random.choice(["consumer", self.classic_protocol])
        return "consumer" if self.mode == "consumer" else self.classic_protocol

    # The run

    def run(self) -> None:
        """All rounds, and the end of the group.

        :raises ViolationError: a promise is broken
        """
        end_ms = self.minutes * 60_000
        for client in self.clients[:3]:
            self.start(client)
        while self.runtime.monotonic_ms() < end_ms:
            self._rage()
            self._calm_down()
        self._end()

    def _rage(self) -> None:
        self.chaos = True
        self.node.log.commit_delay_ms = lambda: self.random.choice([0, 0, 5, 400])
        self.node.scheduler.delay_ms = lambda: self.random.choice(self.delays_ms)
        until_ms = self.runtime.monotonic_ms() + CHAOS_MS
        acts = [
            (self.come, 30),
            (self.leave, 12),
            (self.die, 10),
            (self.dawdle, 8),
            (self.fall_behind, 8),
            (self.grow_topic, 6),
            (self.create_topic, 10 if self.by_regex else 5),
            (self.delete_topic, 10 if self.by_regex else 3),
            (self.reload, 6),
            (self.fail_append, 4),
            (self.change_rights, 15 if self.by_regex else 0),
        ]
        while self.runtime.monotonic_ms() < until_ms:
            self.advance(self.random.expovariate(1 / 1_500))
            (act,) = self.random.choices([act for act, _ in acts], [weight for _, weight in acts])
            self.events += 1
            act()
        if self.random.random() < 0.4:  # who dies just before a failover must be found out after it
            self.die()
            self.advance(self.random.choice([0, 100]))
            self.reload()

    def _calm_down(self) -> None:
        self.chaos = False
        self.node.log.commit_delay_ms = self.node.scheduler.delay_ms = lambda: 0
        self.node.log.refuse = None
        self.node.rights.hide(frozenset())
        for client in self.clients:
            client.lag_ms = 0
            if client.member is not None:
                client.member.settings = replace(client.member.settings, revoke_ms=0)
        self._settle()
        if self.random.random() < 0.5:  # nothing else happens that could bring it to anyone's notice
            self.grow_topic()
            self._settle()
        try:
            self._check_balance()
            self.oracle.live_is_replayed()
            self.oracle.reload_is_the_same()
        except ViolationError as violation:
            self._fail(violation)

    def _settle(self) -> None:
        began_ms = self.runtime.monotonic_ms()
        still = 0
        while still < 4:
            self.advance(1_000)
            if not any(client.member for client in self.clients):
                self.come()
            why = self._why_not()
            still = 0 if why else still + 1
            if self.runtime.monotonic_ms() - began_ms > CALM_MS_MAX:
                self._fail(ViolationError(f"not settled {CALM_MS_MAX} ms after the last fault: {why}"))
        self.longest_calm_ms = max(self.longest_calm_ms, self.runtime.monotonic_ms() - began_ms)

    def _end(self) -> None:
        for client in self.clients:
            if client.member is not None and not client.leaves:
                self.leave_of(client)
        self.advance(4 * SESSION_MS)
        for client in self.clients:
            self.kill(client)
        self.advance(4 * SESSION_MS + 2 * REBALANCE_MS)
        try:
            self._check_deleted()
        except ViolationError as violation:
            self._fail(violation)

    def advance(self, ms: float) -> None:
        """Let time pass; whatever went wrong meanwhile is raised."""
        try:
            self.runtime.advance(ms)
        except SimulationError as error:
            self._fail(error.__cause__ or error)
        if self._violation is not None:
            self._fail(self._violation)

    def _fail(self, error: BaseException) -> None:
        self.trace.note(f"VIOLATION {error}")
        if isinstance(error, ViolationError):
            raise error
        raise ViolationError(f"{type(error).__name__}: {error}") from error

    # What happens to members

    def _some(self, *, running: bool) -> Client | None:
        able = [client for client in self.clients if (client.member is not None) is running]
        return self.random.choice(able) if able else None

    def come(self) -> None:
        """A process starts, maybe with another protocol than last time."""
        client = self._some(running=False)
        if client is not None:
            if self.mode == "mixed":
                client.protocol = self._protocol()
            self.start(client)

    def start(self, client: Client) -> None:
        """Its process starts."""
        client.lives += 1
        client.up_ms = client.down_ms = 0.0
        client.lag_ms, client.leaves = 0, False
        settings = MemberSettings(
            group_id=GROUP,
            client_id=client.name,
            topics=() if self.by_regex else tuple(f"t{n}" for n in range(1, 4)),
            regex=REGEX if self.by_regex else "",
            instance_id=client.instance_id,
            rack_id=self.random.choice(["a", "b", None]),
            assignor=None if client.protocol == "consumer" else client.protocol,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            heartbeat_interval_ms=2_000,
            request_timeout_ms=8_000,
            revoke_ms=self.random.choice([0, 0, 200, 3_000]),
            commit_interval_ms=3_000 if self.scale == 1 else 20_000,
        )
        if client.protocol == "consumer":
            client.member = ConsumerMember(settings, self.view(), f"{client.name}.{client.lives}")
        else:
            client.member = ClassicMember(settings, self.view())
        self.trace.note(f"{client.name} starts as {client.protocol}")
        self.do(client, client.member.start(self.now_ms))

    def leave(self) -> None:
        """A process ends as it should."""
        client = self._some(running=True)
        if client is not None and not client.leaves:
            self.leave_of(client)

    def leave_of(self, client: Client) -> None:
        """It says goodbye."""
        assert client.member is not None
        self.trace.note(f"{client.name} leaves")
        client.leaves = True
        self.do(client, client.member.close(self.now_ms))
        self._gone_if_out(client)

    def die(self) -> None:
        """A process dies, and says nothing."""
        client = self._some(running=True)
        if client is not None:
            self.trace.note(f"{client.name} dies")
            self.kill(client)

    def kill(self, client: Client) -> None:
        """Nothing of this process happens any more."""
        client.lives += 1
        client.member = None
        self.oracle.gone(client.name)

    def dawdle(self) -> None:
        """An application takes its time, maybe too much, to give partitions up."""
        client = self._some(running=True)
        if client is not None and client.member is not None:
            slow = self.random.choice([1_000, 8_000, 25_000])
            client.member.settings = replace(client.member.settings, revoke_ms=slow)
            self.trace.note(f"{client.name} takes {slow} ms to revoke")

    def fall_behind(self) -> None:
        """All messages of a client are late, for a while or until the calm."""
        client = self._some(running=True)
        if client is not None:
            client.lag_ms = self.random.choice([0, 500, 4_000, 12_000])
            self.trace.note(f"{client.name} is {client.lag_ms} ms away")

    # What happens to topics, and to the coordinator

    def create_topic(self) -> None:
        """A new topic; its name was never used before."""
        if self.topics_made < (40 if self.by_regex else 6):
            self.topics_made += 1
            self._cluster_changes(f"t{self.topics_made}", self.random.randrange(1, 7) * self.scale)

    def grow_topic(self) -> None:
        """More partitions."""
        names = self._topics()
        if names:
            name = self.random.choice(names)
            count = len(self.cluster.topics[name].partitions)
            if count < 12 * self.scale:
                self._cluster_changes(name, count + self.random.randrange(1, 4) * self.scale)

    def delete_topic(self) -> None:
        """A topic is deleted; one stays."""
        names = self._topics()
        if len(names) > 1:
            self._cluster_changes(self.random.choice(names), 0)

    def change_rights(self) -> None:
        """Clients may describe other topics than before, when they subscribe by an expression."""
        hidden = frozenset(name for name in self._topics() if self.random.random() < 0.3)
        self.trace.note(f"hidden from now on: {' '.join(sorted(hidden))}")
        self.node.rights.hide(hidden)

    def _topics(self) -> list[str]:
        """The topics that members may read."""
        return [name for name in self.cluster.topics if name.startswith("t")]

    def _cluster_changes(self, name: str, count: int) -> None:
        self.trace.note(f"topic {name} has {count} partitions")
        if count:
            self.cluster.create(name, count)
        else:
            self.cluster.delete(name)
        for client in getattr(self, "clients", ()):
            delay_ms = self.random.uniform(50, REFRESH_MS_MAX)
            self.runtime.call_later(delay_ms, partial(self._refresh, client))

    def _refresh(self, client: Client) -> None:
        if client.member is not None:
            self.do(client, client.member.metadata(self.view(), self.now_ms))

    def view(self) -> View:
        """The metadata of a client that asks now."""
        topics = {name: self.cluster.topics[name] for name in self._topics()}
        return {name: Topic(topic.topic_id, len(topic.partitions)) for name, topic in topics.items()}

    def reload(self) -> None:
        """Another node led for a moment; what was not committed may be lost."""
        truncate = self.random.random() < 0.5
        self.trace.note(f"the coordinator moves, truncate={truncate}")
        self.node.resign()
        if self.node.log.lose_uncommitted(truncate=truncate):
            self.oracle.cut()
        self.runtime.call_later(self.random.choice([0, 50, 1_500]), self.node.elect)

    def fail_append(self) -> None:
        """The next append fails; the shard is dropped, and rebuilt a second later."""
        self.node.log.refuse = ErrorCode.NOT_ENOUGH_REPLICAS

    # What must be true when nothing has gone wrong for long enough, and when all have left

    def _members(self) -> dict[str, Member]:
        return {client.name: client.member for client in self.clients if client.member is not None}

    def _wanted(self) -> set[Partition]:
        """Partitions of topics that all members subscribe to."""
        names = self._topics()
        if not self.by_regex:
            names = [name for name in names if name in ("t1", "t2", "t3")]
        return {(name, index) for name in names for index in self.cluster.topics[name].partitions}

    def _why_not(self) -> str:
        """Name the first thing that is not as it must be yet; "" when all is."""
        members = self._members()
        state = self._state()
        if state != "Stable":
            return f"the group is {state}"
        outside = [name for name, member in members.items() if not member.is_stable]
        if outside:
            return f"{', '.join(outside)} didn't get in"
        owned = [at for member in members.values() for at in member.owned]
        missing = sorted(self._wanted() - set(owned))
        if missing:
            return f"nobody has {missing}"
        if len(owned) != len(set(owned)):
            return "a partition has two owners"
        if set(owned) - self._wanted():
            return f"somebody has {sorted(set(owned) - self._wanted())}"
        return ""

    def _state(self) -> str:
        listed = self.node.send(ListGroupsRequest())
        if not listed.done:
            return "not to be asked"
        groups = {group.group_id: group.group_state for group in listed.result().groups}
        return str(groups.get("g", f"not there (error {listed.result().error_code})"))

    def _check_balance(self) -> None:
        """Nobody starves; and where the assignor deals evenly, nobody has two more than another.

        :raises ViolationError: somebody does
        """
        members = self._members()
        counts = {name: len(member.owned) for name, member in members.items()}
        enough = len(self._wanted()) >= len(members)
        if not self.deals_evenly:
            return
        if enough and not all(counts.values()):
            raise ViolationError(f"somebody starves: {counts} of {len(self._wanted())}")
        if max(counts.values()) - min(counts.values()) > 1:
            raise ViolationError(f"partitions are dealt unevenly: {counts}")

    def _check_deleted(self) -> None:
        """An empty group can be deleted, and nothing is left of it.

        :raises ViolationError: it can't, or something is
        """
        state = self._state()
        if state != "Empty":
            raise ViolationError(f"everyone has left, and the group is {state}")
        (result,) = self.node.ask(DeleteGroupsRequest(groups_names=["g"])).results
        if result.error_code:
            raise ViolationError(f"an empty group can't be deleted: {result.error_code}")
        left = compacted(self.node.log.items)
        if left:
            raise ViolationError(f"of a deleted group {len(left)} records are left: {left[0]!r}")

    # Wires: messages that are late or lost, and wake-ups

    @property
    def now_ms(self) -> int:
        """The wall clock of all."""
        return self.runtime.now_ms()

    def do(self, client: Client, effects: list[Effect]) -> None:
        """Carry out the effects that a member wants."""
        member = client.member
        assert member is not None
        for effect in effects:
            match effect:
                case Send():
                    self._send(client, effect)
                case Own(partitions):
                    self.trace.note(
                        f"{client.name} owns {' '.join(f'{t}-{p}' for t, p in sorted(partitions))}"
                        f" in {member.epoch}"
                    )
                    self._guard(partial(self.oracle.owns, client.name, member, self.now_ms))
                case WakeAt(at_ms):
                    self._wake_at(client, at_ms)
                case Failed(api, error):
                    self._failed(client, api, error)

    def _guard(self, check: Callable[[], None]) -> None:
        try:
            check()
        except ViolationError as violation:
            self._violation = self._violation or violation

    def _failed(self, client: Client, api: str, error: ErrorCode) -> None:
        self.trace.note(f"{client.name} fails: {api} {error.name}")
        if error not in (PASSING_IN_MIGRATION if self.mode == "mixed" else PASSING):
            violation = ViolationError(f"{client.name} was refused {api} with {error.name}")
            self._violation = self._violation or violation
        self.kill(client)
        if not self.chaos:
            self.runtime.call_later(2_000, partial(self._start_again, client, client.lives))

    def _start_again(self, client: Client, life: int) -> None:
        if client.lives == life:
            self.start(client)

    def _wake_at(self, client: Client, at_ms: int) -> None:
        client.wake += 1
        delay_ms = max(0.001, at_ms - self.now_ms)
        self.runtime.call_later(delay_ms, partial(self._woken, client, client.lives, client.wake))

    def _woken(self, client: Client, life: int, wake: int) -> None:
        if client.lives == life and client.wake == wake and client.member is not None:
            self.do(client, client.member.woken(self.now_ms))
            self._gone_if_out(client)

    def _is_lost(self) -> bool:
        return self.chaos and self.random.random() < 0.04

    def _transit_ms(self, client: Client, arrives_ms: float) -> float:
        """Returns the time that a message takes which may not overtake the one before."""
        now_ms = self.runtime.monotonic_ms()
        takes_ms = self.random.uniform(0.2, 20.0 if self.chaos else 2.0) + client.lag_ms / 2
        return max(takes_ms, arrives_ms - now_ms + 0.001)

    def _send(self, client: Client, send: Send) -> None:
        if self._is_lost():
            self.trace.note(f"{client.name} {type(send.request).__name__} is lost")
            return
        transit_ms = self._transit_ms(client, client.up_ms)
        client.up_ms = self.runtime.monotonic_ms() + transit_ms
        # A heartbeat that is heard twice while only one answer comes is not what a connection does.
        twice = isinstance(send.request, OffsetCommitRequest) and self.chaos and self.random.random() < 0.05
        copies = 2 if twice else 1
        for copy in range(copies):
            self.runtime.call_later(transit_ms, partial(self._arrive, client, client.lives, send, copy))

    def _arrive(self, client: Client, life: int, send: Send, copy: int) -> None:
        self.requests += 1
        name = type(send.request).__name__
        epoch = getattr(send.request, "member_epoch", getattr(send.request, "generation_id", ""))
        self.trace.note(f"{client.name} {name} {epoch}{_told(send.request)}")
        answer = self.node.send(send.request, send.api_version, client_id=client.name)
        if not copy:  # nobody waits for the answer to a second one
            answer.when_done(partial(self._answer, client, life, send))
        host = self.node.coordinator._hosts.get(0)
        if (
            self.requests % (LOOK_EVERY * self.scale) == 0
            and host is not None
            and host.state is HostState.ACTIVE
        ):
            self._guard(self.oracle.live_is_replayed)

    def _answer(self, client: Client, life: int, send: Send, answer: Completion[object]) -> None:
        response = answer.result()
        if self._is_lost() or client.lives != life:
            return
        transit_ms = self._transit_ms(client, client.down_ms)
        client.down_ms = self.runtime.monotonic_ms() + transit_ms
        self.runtime.call_later(transit_ms, partial(self._answered, client, life, send, response))

    def _answered(self, client: Client, life: int, send: Send, response: object) -> None:
        member = client.member
        if client.lives != life or member is None:
            return
        had_lease = member.lease_ms > self.now_ms
        code = ErrorCode(getattr(response, "error_code", 0))
        if code or _told(getattr(response, "assignment", None)):
            self.trace.note(
                f"{client.name} is answered {code.name}{_told(getattr(response, 'assignment', None))}"
            )
        self.do(client, member.answered(send.token, response, self.now_ms))
        if client.member is member and not had_lease:
            self._guard(partial(self.oracle.alone, client.name, member, self.now_ms))
        self._gone_if_out(client)

    def _gone_if_out(self, client: Client) -> None:
        """It has left: its process ends."""
        if client.member is not None and not client.member.in_group:
            self.kill(client)


def _told(value: object) -> str:
    """The partitions that a heartbeat speaks of, by the last digits of their topics' ids."""
    topics = getattr(value, "topic_partitions", None)
    if topics is None:
        return ""
    return (
        " " + ",".join(f"{topic.topic_id[-1]}:{topic.partitions}" for topic in topics).replace(" ", "") + "."
    )
