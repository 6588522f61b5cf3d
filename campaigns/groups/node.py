"""A node with one partition of groups on virtual time: the shard under its host and the handlers in front of it.

The test decides on the log (:class:`ModelLog`), on the cluster, on what clients may see of it (:class:`ModelRights`),
and on how busy the node is (:class:`BusyScheduler`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from blumfeld.broker.handlers import group_handlers
from blumfeld.broker.handlers.groups.common import GroupPorts
from blumfeld.config.values import BrokerConfig
from blumfeld.coordinator.groups.shard import GroupsShard
from blumfeld.coordinator.runtime.coordinator import Coordinator
from blumfeld.coordinator.runtime.record_runs import RecordRun
from blumfeld.coordinator.runtime.shard_contract import LogItem
from blumfeld.spi.completion import Completion, Steps
from blumfeld.spi.groups import CoordinatorRecord, GroupProtocol, Producer
from blumfeld.spi.scheduler import Finished, Lane, Scheduler, Work
from blumfeld.wire.api import ApiKey, request_class, response_class
from blumfeld.wire.codec import decode, encode
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.schema import Message
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_kit.groups.model import ModelCluster, ModelContext

PARTITION = 0


class ModelLog:
    """``CoordinatorLog`` in memory: what is appended is committed after :attr:`commit_delay_ms`, in order."""

    def __init__(self, runtime: FakeRuntime) -> None:
        self.epoch = 1
        self.items: list[CoordinatorRecord] = []
        self.commit_delay_ms: Callable[[], float] = lambda: 0
        self.refuse: ErrorCode | None = None
        """The next append places nothing."""
        self._runtime = runtime
        self.placed: Callable[[Sequence[CoordinatorRecord]], None] = lambda _: None
        """It sees each batch before anyone replays it."""
        self._open: list[tuple[int, Completion[None]]] = []
        self._due_ms = 0.0

    def append(
        self, records: Sequence[CoordinatorRecord], producer: Producer | None = None
    ) -> Completion[None]:
        """Place a batch."""
        if self.refuse is not None:
            code, self.refuse = self.refuse, None
            raise BrokerError(code)
        assert producer is None, "no member of the simulation commits in a transaction"
        start = len(self.items)
        self.placed(records)
        self.items += records
        return self._later(start)

    def _later(self, start: int) -> Completion[None]:
        committed: Completion[None] = Completion()
        now_ms = self._runtime.monotonic_ms()
        self._due_ms = max(self._due_ms, now_ms + self.commit_delay_ms())
        self._open.append((start, committed))

        def commit() -> None:
            while not committed.done and self._open:
                self._open.pop(0)[1].complete(None)

        if self._due_ms <= now_ms and len(self._open) == 1:
            commit()
        else:
            self._runtime.call_later(self._due_ms - now_ms, commit)
        return committed

    def check_producer(self, producer: Producer) -> None:
        """Every producer may write."""

    def written(self) -> Completion[None]:
        """At once: there is no disk."""
        return Completion.of(None)

    def records(self) -> Iterator[LogItem]:
        """All that was placed, and not lost, in one run, as a real log gives a batch."""
        if self.items:
            yield RecordRun([item.key for item in self.items], [item.value for item in self.items])

    def committed(self) -> Completion[None]:
        """Once all that was placed is committed."""
        return self._later(len(self.items)) if self._open else Completion.of(None)

    def lose_uncommitted(self, *, truncate: bool) -> bool:
        """Leadership has gone. What isn't committed is cut off, or was replicated all the same, and nobody knows.
        Whether anything was cut off.
        """
        lost, self._open = self._open, []
        cut = truncate and bool(lost) and lost[0][0] < len(self.items)
        if cut:
            del self.items[lost[0][0] :]
        for _, committed in lost:
            committed.fail(BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        return cut


class ModelRights:
    """The topics that clients may not describe when they subscribe by an expression."""

    def __init__(self) -> None:
        self.hidden: frozenset[str] = frozenset()
        self.generation = 0

    def hide(self, names: frozenset[str]) -> None:
        """These, and no others, from now on."""
        self.hidden = names
        self.generation += 1


class ContextWithRights(ModelContext):
    """``RequestContext`` of a client whose rights change, also after its request was answered."""

    def __init__(self, rights: ModelRights, api_key: int, api_version: int, client_id: str) -> None:
        super().__init__(api_key, api_version, client_id)
        self._rights = rights

    @property
    def rights_generation(self) -> int:
        """As ``RequestContext.rights_generation``."""
        return self._rights.generation

    def authorize(self, operation: str, resource_type: str, name: str, *, quiet: bool = False) -> bool:
        """As ``RequestContext.authorize``."""
        hidden = self.api_key == ApiKey.CONSUMER_GROUP_HEARTBEAT and name in self._rights.hidden
        return not (hidden and (operation, resource_type) == ("Describe", "Topic"))


class BusyScheduler(Scheduler):
    """A scheduler whose lane of coordinators is busy: each piece of work waits for :attr:`delay_ms`. So much may happen
    between two slices of a long computation."""

    def __init__(self, runtime: FakeRuntime) -> None:
        super().__init__(runtime.monotonic_ms, lambda callback: runtime.call_later(0, callback))
        self.delay_ms: Callable[[], float] = lambda: 0
        self._runtime = runtime

    def run(
        self,
        lane: Lane,
        steps: Steps[Any],
        finished: Finished | None = None,
        *,
        wanted: Callable[[], bool] | None = None,
        at_once: bool = True,
    ) -> Work:
        """As ``Scheduler.run``."""
        delay_ms = self.delay_ms() if lane is Lane.COORDINATORS else 0
        if delay_ms > 0:
            steps = self._later(steps, delay_ms)
        return super().run(lane, steps, finished, wanted=wanted, at_once=at_once)

    def _later(self, steps: Steps[Any], delay_ms: float) -> Steps[Any]:
        due: Completion[None] = Completion()
        self._runtime.call_later(delay_ms, lambda: due.complete(None))
        yield due
        return (yield from steps)


class QuietEvents:
    """``EventLog`` that keeps what was said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def debug(self, event: str, **values: Any) -> None:
        """Keep it."""
        self.said.append(f"{event} {values}")

    info = warning = error = debug


class GroupsNode:
    """A node that leads one partition of ``__consumer_offsets``. Answers go through the codec of their version."""

    def __init__(
        self,
        protocols: Sequence[GroupProtocol],
        config: Mapping[str, str | int | float | bool] | None = None,
        *,
        runtime: FakeRuntime | None = None,
        cluster: ModelCluster | None = None,
    ) -> None:
        self.runtime = runtime if runtime is not None else FakeRuntime()
        self.cluster = cluster if cluster is not None else ModelCluster()
        self.protocols = list(protocols)
        self.config = BrokerConfig({"group.initial.rebalance.delay.ms": 0, **(config or {})})
        self.log = ModelLog(self.runtime)
        self.rights = ModelRights()
        self.scheduler = self.runtime.scheduler = BusyScheduler(self.runtime)
        self.events = QuietEvents()
        self.loads = 0
        self.shard: GroupsShard | None = None
        """The one that decides, or will when it is loaded."""
        self._ids = 0
        self.coordinator = Coordinator(self.runtime, self.events, self._new_shard, lambda: 1)
        self.handlers = {
            handler.key: handler
            for handler in group_handlers(GroupPorts(self.coordinator, lambda: self.cluster), self.protocols)
        }
        self.elect()
        self.runtime.run_turn()

    def elect(self) -> None:
        """It becomes leader (again): everything is built from the log."""
        self.coordinator.elected(PARTITION, self.log)

    def resign(self) -> None:
        """It is leader no more."""
        self.coordinator.resigned(PARTITION)

    def _new_shard(self, _partition: int) -> GroupsShard:
        self.loads += 1
        self.shard = self.fresh_shard()
        return self.shard

    def fresh_shard(self) -> GroupsShard:
        """One without groups, that nobody asks."""
        return GroupsShard(self.protocols, self.config, lambda: self.cluster, self._new_member_id)

    def replayed(self, items: Sequence[LogItem]) -> GroupsShard:
        """A fresh shard that has replayed these items of the log."""
        shard = self.fresh_shard()
        for item in items:
            assert isinstance(item, CoordinatorRecord)
            shard.replay(item)
        return shard

    def _new_member_id(self, prefix: str) -> str:
        self._ids += 1
        return f"{prefix}-{self._ids}"

    def send(
        self, request: Message, version: int | None = None, *, client_id: str = "client"
    ) -> Completion[Any]:
        """Send a request, in the newest version unless told; completes with the response, as a client reads it."""
        key = request.meta.key
        assert key is not None
        handler = self.handlers.get(key)
        assert handler is not None, f"nobody here answers API {key}"
        version = handler.max_version if version is None else version
        request = decode(request_class(key), encode(request, version), version)
        answered: Completion[Any] = Completion()

        def read(response: Any) -> Any:
            return decode(response_class(key), encode(response, version), version)

        def refused(error: BrokerError) -> Any:
            return read(handler.error_response(request, error.code, error.message))

        def settle(done: Completion[Any]) -> None:
            if isinstance(done.error, BrokerError):
                answered.complete(refused(done.error))
            else:
                answered.complete(read(done.result()))

        try:
            answer = handler.handle(request, ContextWithRights(self.rights, key, version, client_id))
        except BrokerError as error:
            answered.complete(refused(error))
            return answered
        if isinstance(answer, Completion):
            answer.when_done(settle)
        else:
            assert isinstance(answer, Message)
            answered.complete(read(answer))
        return answered

    def ask(self, request: Message, version: int | None = None, *, client_id: str = "client") -> Any:
        """The response to a request that is answered at once."""
        return self.send(request, version, client_id=client_id).result()
