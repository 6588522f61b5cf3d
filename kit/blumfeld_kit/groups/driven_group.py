"""One shard of a group type, with a host that shows each decision to the test before it is carried out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from blumfeld.config.values import BrokerConfig
from blumfeld.coordinator.groups.records import decode_record
from blumfeld.spi.completion import Completion
from blumfeld.spi.groups import CoordinatorRecord, Decision, GroupProtocol, GroupShard
from blumfeld.wire.api import request_class
from blumfeld.wire.codec import decode, encode
from blumfeld.wire.errors import BrokerError
from blumfeld.wire.schema import Message
from blumfeld_kit.groups.model import ModelCluster, ModelContext

START_MS = 1_700_000_000_000


class GroupUnderTest:
    """A shard with its log, its timers and the requests that wait. It is the ``Surroundings`` of the shard.

    :meth:`ask` and :meth:`wait` are for the life of a group. ``decided`` is called with the command (a request or a
        timer's command) before its decision is replayed, ``done`` after that.
    """

    def __init__(
        self,
        protocol: GroupProtocol,
        config: Mapping[str, str | int | float | bool],
        *,
        decided: Callable[[GroupUnderTest, Any, Decision | None], None] = lambda *_: None,
        done: Callable[[GroupUnderTest], None] = lambda _: None,
        before: Callable[[GroupUnderTest], None] = lambda _: None,
    ) -> None:
        self.protocol = protocol
        self.config = BrokerConfig(config)
        self.cluster = ModelCluster()
        self.cluster.create("t", 4)
        self.cluster.create("u", 1)
        self.now_ms = START_MS
        self.log: list[CoordinatorRecord] = []
        self.timers: dict[tuple[str, ...], tuple[int, Any]] = {}
        """Key → (time, command)."""
        self.ordered: list[Any] = []
        """Every command that a timer was set for."""
        self.ids = 0
        self._decided, self._done, self._before = decided, done, before
        self._waiting: dict[Any, Completion[Any]] = {}
        self.shard: GroupShard = protocol.new_shard(self)

    # Surroundings

    def image(self) -> ModelCluster:
        """Topics ``t`` with 4 partitions, ``u`` with 1."""
        return self.cluster

    def new_member_id(self, prefix: str) -> str:
        """Return ``prefix-1``, ``prefix-2`` and so on."""
        self.ids += 1
        return f"{prefix}-{self.ids}"

    def owner(self, group_id: str) -> GroupShard | None:
        """Return this shard if it owns the group, else ``None``."""
        return self.shard if self.shard.owns(group_id) else None

    def shard_of(self, group_type: str) -> GroupShard | None:
        """Return this shard for its own type, else ``None``: there is no other type."""
        return self.shard if group_type == self.protocol.name else None

    # The life of a group

    def ask(
        self, request: Message, version: int | None = None, *, client_id: str = "client"
    ) -> Completion[Any]:
        """Send a request through its codec. A refusal is answered with the type's error response."""
        key = request.meta.key
        assert key is not None
        if version is None:
            version = self.protocol.apis[key][1]
        request = decode(request_class(key), encode(request, version), version)
        answered: Completion[Any] = Completion()
        try:
            decision = self._decide(request, ModelContext(key, version, client_id))
        except BrokerError as error:
            answered.complete(self.protocol.error_response(request, error.code, error.message))
            self._done(self)
            return answered
        if decision.deferred is not None:
            self._waiting[decision.deferred] = answered
        else:
            assert decision.reply is not None, (
                f"the decision on {type(request).__name__} has neither a reply nor a token of a deferred one"
            )
            answered.complete(decision.reply)
        self._apply(decision)
        return answered

    def wait(self, ms: int) -> None:
        """Let time pass. Timers fire in the order of their times."""
        until_ms = self.now_ms + ms
        while True:
            due = [
                (at_ms, n, key)
                for n, (key, (at_ms, _)) in enumerate(self.timers.items())
                if at_ms <= until_ms
            ]
            if not due:
                self.now_ms = until_ms
                return
            at_ms, _, key = min(due)
            self.now_ms = max(self.now_ms, at_ms)
            _, command = self.timers.pop(key)
            self._apply(self._decide(command, None))

    def _decide(self, command: Any, context: ModelContext | None) -> Decision:
        self._before(self)
        try:
            decision = self.shard.command(command, context, self.now_ms)
        except BrokerError:
            self._decided(self, command, None)
            raise
        self._decided(self, command, decision)
        return decision

    def _apply(self, decision: Decision) -> None:
        self.append(decision.records)
        self.order(decision)
        for token, reply in decision.answers:
            waiting = self._waiting.pop(token, None)
            if waiting is not None:
                waiting.complete(reply)
        self._done(self)

    def order(self, decision: Decision) -> None:
        """Set and cancel the timers of a decision."""
        for order in decision.timers:
            self.timers.pop(order.key, None)
            if order.delay_ms is not None:
                self.timers[order.key] = (self.now_ms + order.delay_ms, order.command)
                self.ordered.append(order.command)

    def append(self, records: Sequence[CoordinatorRecord]) -> None:
        """Append records to the log, and let the shard replay them."""
        self.log += records
        self.replay(self.shard, records)

    def replay(self, shard: GroupShard, records: Sequence[CoordinatorRecord]) -> None:
        """Let a shard replay these records."""
        for item in records:
            decoded = decode_record(self.protocol.record_types, item)
            assert decoded is not None, f"a record of type {item.key[:2].hex()} is not in record_types"
            shard.replay(*decoded)

    def reloaded(self, records: Sequence[CoordinatorRecord] | None = None) -> GroupShard:
        """Return a fresh shard that has replayed the log, or these records."""
        shard = self.protocol.new_shard(self)
        self.replay(shard, self.log if records is None else records)
        return shard

    def reload(self) -> None:
        """Replace the shard as after a change of leadership: a fresh one replays the log."""
        self.shard = self.reloaded()
        self.timers.clear()
        for waiting in self._waiting.values():
            waiting.complete(None)
        self._waiting.clear()
        loaded = self.shard.loaded(self.now_ms)
        self.append(loaded.records)
        self.order(loaded)
