"""The wires between simulated members and their coordinator: messages that are late or lost, and wake-ups."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

import attrs

from blumfeld.coordinator.runtime.host import HostState
from blumfeld.spi.completion import Completion
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.offset_commit import OffsetCommitRequest
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_kit.simulation.trace import Trace
from campaigns.groups.members import Effect, Failed, Member, Own, Send, WakeAt
from campaigns.groups.node import GroupsNode
from campaigns.groups.oracle import Oracle, ViolationError

LOOK_EVERY = 4
"""The shard is compared with its log after so many requests."""
PASSING = (ErrorCode.UNRELEASED_INSTANCE_ID, ErrorCode.FENCED_INSTANCE_ID)
"""What may end a member that does nothing wrong: its instance id is in use still, or again."""
PASSING_IN_MIGRATION = (*PASSING, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


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
    """When the newest message in each direction arrives: none overtakes another."""
    lag_ms: int = 0
    """It is far away, for now."""
    leaves: bool = False


class Wires:
    """What a simulation's members and its coordinator hear of each other. The rest is the simulation's."""

    mode: str
    random: random.Random
    runtime: FakeRuntime
    trace: Trace
    node: GroupsNode
    oracle: Oracle | None
    scale: int
    chaos: bool
    requests: int
    _violation: BaseException | None

    @property
    def now_ms(self) -> int:
        """The wall clock of all."""
        return self.runtime.now_ms()

    def start(self, client: Client) -> None:
        """Its process starts."""
        raise NotImplementedError

    def kill(self, client: Client) -> None:
        """Nothing of this process happens any more."""
        raise NotImplementedError

    def do(self, client: Client, effects: list[Effect]) -> None:
        """What a member wants."""
        member = client.member
        assert member is not None
        assert self.oracle is not None
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
        """How long a message takes that may not overtake the one before."""
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
        assert self.oracle is not None
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
        assert self.oracle is not None
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
