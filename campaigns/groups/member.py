"""The part of model members that both protocols share: events in, effects out, on whatever clock the driver has.

A member never reads a clock, draws nothing from chance and opens nothing. The driver calls a method of it with the
time, does the effects in their order, and delivers answers by :meth:`Member.answered`, or never: a request
that isn't answered in time counts as lost, and an answer that comes later is ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import msgspec

from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from blumfeld.wire.schema import Message
from blumfeld_kit.simulation.clients.offsets import commit_request

Partition: TypeAlias = tuple[str, int]
"""(topic name, partition)."""


class Topic(msgspec.Struct, frozen=True):
    """A topic in a client's metadata."""

    topic_id: bytes
    partitions: int


View: TypeAlias = Mapping[str, Topic]
"""A client's metadata: topics by name."""


class MemberSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Configuration of a client, and speed of its application."""

    group_id: str
    client_id: str
    topics: tuple[str, ...] = ()
    regex: str = ""
    """Subscribe by it: RE2 syntax for KIP-848, which the broker resolves; a classic client matches itself."""
    instance_id: str | None = None
    rack_id: str | None = None
    assignor: str | None = None
    """KIP-848: ``group.remote.assignor``. Classic: ``range`` (eager) or ``cooperative-sticky``."""
    session_timeout_ms: int = 45_000
    """KIP-848: the broker's, of which the client is not told; only :attr:`Member.lease_ms` needs it."""
    rebalance_timeout_ms: int = 60_000
    heartbeat_interval_ms: int = 3_000
    """Classic; with KIP-848 only until the broker has said one."""
    request_timeout_ms: int = 30_000
    retry_backoff_ms: int = 100
    revoke_ms: int = 0
    """Time that the application takes to give partitions up."""
    commit_interval_ms: int = 5_000
    """0: it commits nothing, and reads no committed offsets."""


class Send(msgspec.Struct, frozen=True):
    """Send this request to the group's coordinator."""

    token: int
    request: Message
    api_version: int


class Own(msgspec.Struct, frozen=True):
    """From now on the application reads these partitions, and no others."""

    partitions: frozenset[Partition]


class WakeAt(msgspec.Struct, frozen=True):
    """Call :meth:`Member.woken` at this time; it replaces the wake-up before."""

    at_ms: int


class Failed(msgspec.Struct, frozen=True):
    """The application gets this error: the member is out, and stays so until it is started again."""

    api: str
    error: ErrorCode


Effect: TypeAlias = Send | Own | WakeAt | Failed


class Asked(msgspec.Struct):
    """A request that waits for its answer."""

    name: str
    sent_ms: int
    request: Message


class Member:
    """A client's part in a group. Drive it by :meth:`start`, :meth:`woken`, :meth:`answered`, :meth:`metadata`
    and :meth:`close`; each gives effects, to be done in their order.
    """

    def __init__(self, settings: MemberSettings, view: View) -> None:
        self.settings = settings
        self.view = view
        self.member_id = ""
        self.epoch = -1
        """Member epoch, or classic generation; below 1 it is in none."""
        self.owned: frozenset[Partition] = frozenset()
        """The partitions that the application reads."""
        self.positions: dict[Partition, int] = {}
        """The next offset of each partition whose committed offset it has fetched."""
        self.in_group = False
        self.failed: Failed | None = None
        self.confirmed_ms = -1
        """The time at which it sent the newest request whose answer said that it is a member."""
        self.now_ms = 0
        self._effects: list[Effect] = []
        self._tokens = 0
        self._asked: dict[int, Asked] = {}
        self._timers: dict[str, int] = {}
        self._handlers: dict[str, Callable[[Asked, Any], None]] = {
            "commit": self._committed,
            "fetch": self._fetched,
        }

    @property
    def lease_ms(self) -> int:
        """Until when the coordinator can't have given its partitions away without its knowing."""
        settings = self.settings
        return self.confirmed_ms + min(settings.session_timeout_ms, settings.rebalance_timeout_ms)

    @property
    def is_stable(self) -> bool:
        """Whether it is in the group, has what it was assigned, and waits for nothing but the next heartbeat."""
        raise NotImplementedError

    # Events

    def start(self, now_ms: int) -> list[Effect]:
        """Join the group, as a process that has just begun."""
        self.now_ms = now_ms
        self.failed = None
        self._begin()
        return self._done()

    def woken(self, now_ms: int) -> list[Effect]:
        """The time of the newest ``WakeAt`` has come; earlier does no harm."""
        self.now_ms = now_ms
        while True:
            due = [(at, name) for name, at in self._timers.items() if at <= now_ms]
            if not due:
                return self._done()
            name = min(due)[1]
            del self._timers[name]
            self._due(name)

    def answered(self, token: int, response: Any, now_ms: int) -> list[Effect]:
        """The response to a request; ``None``: it is lost for certain (the connection broke)."""
        self.now_ms = now_ms
        question = self._asked.pop(token, None)
        if question is not None:
            self._timers.pop(f"timeout {token}", None)
            self._handlers[question.name](question, response)
        return self._done()

    def metadata(self, view: View, now_ms: int) -> list[Effect]:
        """The client has refreshed its metadata."""
        self.now_ms = now_ms
        self.view = view
        self._view_changed()
        return self._done()

    def close(self, now_ms: int) -> list[Effect]:
        """Give everything up, commit, and leave."""
        self.now_ms = now_ms
        self._leave()
        return self._done()

    # What each protocol does

    def _begin(self) -> None:
        raise NotImplementedError

    def _leave(self) -> None:
        raise NotImplementedError

    def _view_changed(self) -> None:
        raise NotImplementedError

    def _fired(self, name: str) -> None:
        raise NotImplementedError

    # Effects

    def _done(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        if self._timers:
            effects.append(WakeAt(min(self._timers.values())))
        return effects

    def _due(self, name: str) -> None:
        if name.startswith("timeout "):
            question = self._asked.pop(int(name.removeprefix("timeout ")), None)
            if question is not None:
                self._handlers[question.name](question, None)
        elif name == "commit":
            self._tick()
        else:
            self._fired(name)

    def _after(self, name: str, delay_ms: int) -> None:
        self._timers[name] = self.now_ms + delay_ms

    def _ask(self, name: str, request: Message, api_version: int, timeout_ms: int | None = None) -> None:
        self._forget(name)
        self._tokens += 1
        self._asked[self._tokens] = Asked(name, self.now_ms, request)
        self._after(
            f"timeout {self._tokens}", self.settings.request_timeout_ms if timeout_ms is None else timeout_ms
        )
        self._effects.append(Send(self._tokens, request, api_version))

    def _asks(self, name: str) -> bool:
        return any(question.name == name for question in self._asked.values())

    def _forget(self, name: str) -> None:
        """Whatever is answered to this, it is too late."""
        for token in [token for token, question in self._asked.items() if question.name == name]:
            del self._asked[token]
            del self._timers[f"timeout {token}"]

    def _own(self, partitions: frozenset[Partition]) -> None:
        if partitions == self.owned:
            return
        self.owned = partitions
        self.positions = {at: offset for at, offset in self.positions.items() if at in partitions}
        self._effects.append(Own(partitions))

    def _fail(self, api: str, error: ErrorCode) -> None:
        """An error that the application gets."""
        self._own(frozenset())
        self._stop()
        self.failed = Failed(api, error)
        self._effects.append(self.failed)

    def _stop(self) -> None:
        self._asked.clear()
        self._timers.clear()
        self.in_group = False

    # Offsets: the application reads one record of each partition in each interval, and commits

    def _tick(self) -> None:
        self._after("commit", self.settings.commit_interval_ms)
        unknown = sorted(self.owned - self.positions.keys())
        if unknown and not self._asks("fetch"):
            self._fetch(unknown)
        for at in sorted(self.positions):
            self.positions[at] += 1
        self._commit(self.positions)

    def _commit(self, positions: Mapping[Partition, int]) -> None:
        """Commit these, unless there is nothing, or it has no say any more."""
        if not positions or self.epoch < 1 or not self.settings.commit_interval_ms:
            return
        request = commit_request(self.settings.group_id, dict(sorted(positions.items())))
        request.member_id, request.group_instance_id = self.member_id, self.settings.instance_id
        request.generation_id_or_member_epoch = self.epoch
        self._ask("commit", request, 9)

    def _committed(self, question: Asked, response: Any) -> None:
        """Errors are the heartbeat's to find out: what wasn't committed is committed with the next."""

    def _fetch(self, partitions: list[Partition]) -> None:
        topics: dict[str, OffsetFetchRequestTopics] = {}
        for name, index in partitions:
            topics.setdefault(name, OffsetFetchRequestTopics(name=name)).partition_indexes.append(index)
        group = OffsetFetchRequestGroup(
            group_id=self.settings.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            topics=list(topics.values()),
        )
        self._ask("fetch", OffsetFetchRequest(groups=[group], require_stable=True), 9)

    def _fetched(self, question: Asked, response: Any) -> None:
        if response is None or response.groups[0].error_code:
            return  # the next tick asks again
        for topic in response.groups[0].topics:
            for item in topic.partitions:
                at = (topic.name, item.partition_index)
                if not item.error_code and at in self.owned:
                    self.positions.setdefault(at, max(0, item.committed_offset))
