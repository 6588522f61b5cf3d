"""A groups shard under its host, with a cluster image, for tests that send requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from blumfeld.broker.handlers import group_handlers
from blumfeld.broker.handlers.groups.common import GroupPorts
from blumfeld.config.values import BrokerConfig
from blumfeld.coordinator.groups.shard import GroupsShard
from blumfeld.coordinator.runtime.coordinator import Coordinator
from blumfeld.spi.completion import Completion
from blumfeld.spi.groups import GroupProtocol
from blumfeld.wire.api import API_BY_KEY, request_class, response_class
from blumfeld.wire.codec import decode, encode
from blumfeld.wire.errors import BrokerError
from blumfeld.wire.schema import Message
from blumfeld_groups_classic import ClassicGroupProtocol
from blumfeld_kit.fakes.runtime import FakeRuntime
from tests.coordinator.fakes import Events, FakeContext, FakeImage, FakeLog

Config = Mapping[str, str | int | float | bool]
SHARD = 0


class Groups:
    """One partition of groups, with the handlers in front of it. Answers go through the codec of their version."""

    def __init__(
        self,
        config: Config | None = None,
        *,
        log: FakeLog | None = None,
        protocols: Sequence[GroupProtocol] | None = None,
        topics: Mapping[str, int] | None = None,
        transactions: bool = False,
    ) -> None:
        self.runtime = FakeRuntime()
        self.image = FakeImage({"t": 4, "u": 1} if topics is None else topics)
        self.log = log if log is not None else FakeLog()
        self.events = Events()
        self.ids = 0
        self.config = BrokerConfig({"group.initial.rebalance.delay.ms": 0, **(config or {})})
        self.protocols = [ClassicGroupProtocol()] if protocols is None else protocols
        self.shards: list[GroupsShard] = []
        self.coordinator = Coordinator(self.runtime, self.events, self._new_shard, lambda: 1)
        self.coordinator.elected(SHARD, self.log)
        self.handlers = {
            handler.key: handler
            for handler in group_handlers(
                GroupPorts(self.coordinator, lambda: self.image), self.protocols, transactions
            )
        }

    @property
    def shard(self) -> GroupsShard:
        """The shard that decides now."""
        return self.shards[-1]

    def _new_shard(self, _partition: int) -> GroupsShard:
        shard = GroupsShard(self.protocols, self.config, lambda: self.image, self._new_member_id)
        self.shards.append(shard)
        return shard

    def _new_member_id(self, prefix: str) -> str:
        self.ids += 1
        return f"{prefix}-{self.ids}"

    def send(
        self,
        request: Message,
        version: int | None = None,
        *,
        client_id: str = "client",
        denied: Callable[[str, str, str], bool] = lambda *_: False,
    ) -> Completion[Any]:
        """Send a request, in the newest version unless told; completes with the response, as a client reads it."""
        key = request.meta.key
        assert key is not None
        handler = self.handlers[key]
        version = handler.max_version if version is None else version
        request = decode(request_class(key), encode(request, version), version)
        answered: Completion[Any] = Completion()

        def read(response: Any) -> Any:
            return decode(response_class(key), encode(response, version), version)

        def settle(done: Completion[Any]) -> None:
            if isinstance(done.error, BrokerError):
                answered.complete(read(handler.error_response(request, done.error.code, done.error.message)))
            else:
                answered.complete(read(done.result()))

        context = FakeContext(key, version, client_id=client_id, denied=denied)
        try:
            answer = handler.handle(request, context)
        except BrokerError as error:
            answered.complete(read(handler.error_response(request, error.code, error.message)))
            return answered
        assert isinstance(answer, Completion), API_BY_KEY[key].name
        answer.when_done(settle)
        return answered

    def ask(self, request: Message, version: int | None = None, **options: Any) -> Any:
        """The response to a request that is answered at once."""
        return self.send(request, version, **options).result()

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """A marker is placed in the log, as WriteTxnMarkers does it."""
        self.log.end_transaction(producer_id, committed)
        self.coordinator.transaction_ended(SHARD, producer_id, committed)

    def reload(self) -> None:
        """The node loses and regains leadership: everything is built from the log."""
        self.coordinator.elected(SHARD, self.log)
