"""All shards of one internal topic that this node leads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import cache, partial
from operator import mul
from struct import unpack
from typing import Any

from blumfeld.coordinator.runtime.counts import CoordinatorCounts
from blumfeld.coordinator.runtime.host import HostState, ShardHost
from blumfeld.coordinator.runtime.shard_contract import CoordinatorLog, Shard
from blumfeld.spi.cluster import ClusterImage
from blumfeld.spi.completion import Completion, Steps
from blumfeld.spi.context import RequestContext
from blumfeld.spi.defects import command_text, place_of
from blumfeld.spi.hooks import EventLog
from blumfeld.spi.repeated_events import RepeatedEvents
from blumfeld.spi.runtime import Runtime
from blumfeld.spi.scheduler import Lane
from blumfeld.wire.errors import BrokerError, ErrorCode

RELOAD_DELAY_MS = 1_000
"""Pause before a dropped shard is rebuilt by replay, if this node still leads its partition."""
RELOAD_DELAY_MAX_MS = 30_000
"""Longest pause before another attempt at a log that can't be replayed. The pause doubles with each failure."""


class Coordinator:
    """Routes commands to shards by key. It builds a shard when this node becomes leader of the shard's partition, and
    drops it when the leadership ends.
    """

    def __init__(
        self,
        runtime: Runtime,
        events: EventLog,
        new_shard: Callable[[int], Shard],
        partition_count: Callable[[], int],
        perform: Callable[[int, int, Any], None] | None = None,
    ) -> None:
        """:param new_shard: makes an empty shard for a partition
        :param partition_count: returns the number of partitions of the internal topic; 0 if there is no topic
        :param perform: called with (partition, leader epoch, effect) for each effect of a committed decision; its
            outcome comes back by :meth:`submit_in_epoch`
        """
        self._runtime = runtime
        self._events = events
        self._defects = RepeatedEvents(runtime)
        self._new_shard = new_shard
        self._partition_count = partition_count
        self._perform = perform
        self.counts = CoordinatorCounts()
        self._hosts: dict[int, ShardHost] = {}
        self._failed_loads: dict[int, int] = {}
        """Failed loads in a row, by partition."""
        self._untold: deque[tuple[int, Any]] = deque()
        """(partition, command) of :meth:`tell_all` that no shard was given yet."""
        self._due: dict[int, list[Any]] = {}
        """Commands of :meth:`tell_all` for shards that are still being replayed."""

    def elected(self, partition: int, log: CoordinatorLog) -> None:
        """Build the partition's shard from this log: this node leads the partition from now on."""
        self.resigned(partition)
        self._build(partition, log)

    def resigned(self, partition: int) -> None:
        """Drop the partition's shard: this node doesn't lead the partition any more."""
        host = self._hosts.pop(partition, None)
        if host is not None:
            host.stop()
        self._failed_loads.pop(partition, None)
        self._due.pop(partition, None)

    def _build(self, partition: int, log: CoordinatorLog) -> None:
        def dropped(error: BaseException) -> None:
            self._dropped(partition, log, error)

        def undecided(command: Any, defect: Exception) -> None:
            self._undecided(partition, command, defect)

        perform = None if self._perform is None else partial(self._perform, partition, log.epoch)
        host = ShardHost(
            self._runtime,
            log,
            self._new_shard(partition),
            dropped,
            lambda: self._when_loaded(partition),
            self.counts,
            undecided,
            perform,
        )
        self._hosts[partition] = host
        # Replay reads what is written. Records that are only placed would be missing from the shard.
        log.written().when_done(lambda _: host.load())

    def _when_loaded(self, partition: int) -> None:
        self._failed_loads.pop(partition, None)
        for command in self._due.pop(partition, ()):
            self._hosts[partition].submit(command, None)

    def transaction_ended(self, partition: int, producer_id: int, committed: bool) -> None:
        """Pass on that a marker of this producer was placed in the partition. Without a shard here nothing happens."""
        host = self._hosts.get(partition)
        if host is not None:
            host.transaction_ended(producer_id, committed)

    def submit(self, key: str, command: Any, context: RequestContext | None) -> Completion[Any]:
        """Have the shard of ``key`` decide. Completes with its reply.

        Fails with the command's ``BrokerError``, or with NOT_COORDINATOR if this node doesn't lead the partition.
        """
        count = self._partition_count()
        host = self._hosts.get(partition_for(key, count)) if count else None
        if host is None:
            completion: Completion[Any] = Completion()
            completion.fail(BrokerError(ErrorCode.NOT_COORDINATOR))
            return completion
        return host.submit(command, context)

    def submit_in_epoch(self, partition: int, epoch: int, command: Any) -> Completion[Any]:
        """Have the shard of a partition decide on the outcome of an effect that it ordered in this leader epoch.

        Fails as :meth:`submit`, and with NOT_COORDINATOR if the partition's shard lives in another epoch: the order was
        a former leadership's.
        """
        host = self._hosts.get(partition)
        if host is None or host.epoch != epoch:
            completion: Completion[Any] = Completion()
            completion.fail(BrokerError(ErrorCode.NOT_COORDINATOR))
            return completion
        return host.submit(command, None)

    def epoch_of(self, partition: int) -> int | None:
        """Returns the leader epoch of the partition's shard on this node, in any state; ``None`` without a shard."""
        host = self._hosts.get(partition)
        return None if host is None else host.epoch

    def shards(self) -> list[tuple[int, int]]:
        """Returns (partition, leader epoch) of every shard on this node, in any state, in the partitions' order."""
        return [(partition, self._hosts[partition].epoch) for partition in sorted(self._hosts)]

    def active(self) -> list[Shard]:
        """Returns the shards that are loaded."""
        return [host.shard for host in self._hosts.values() if host.state is HostState.ACTIVE]

    def submit_to_all(self, command: Any, context: RequestContext | None) -> list[Completion[Any]]:
        """Have every shard on this node decide, in the order of their partitions."""
        return [self._hosts[partition].submit(command, context) for partition in sorted(self._hosts)]

    def tell_all(self, command: Any) -> None:
        """Tell every shard on this node of an event, some shards in each turn, so that other requests go on.

        A shard that is being replayed is told afterwards.
        """
        is_telling = bool(self._untold)
        self._untold.extend((partition, command) for partition in sorted(self._hosts))
        if self._untold and not is_telling:
            self._runtime.scheduler.run(Lane.COORDINATORS, self._tell(), at_once=False)

    def _tell(self) -> Steps[None]:
        while self._untold:
            partition, command = self._untold.popleft()
            host = self._hosts.get(partition)  # None: the partition's new leader is told by its own node
            if host is not None and host.state is HostState.ACTIVE:
                try:
                    host.submit(command, None)
                except Exception as defect:  # the shard is dropped; the others are told
                    self._undecided(partition, command, defect)
            elif host is not None:
                self._due.setdefault(partition, []).append(command)
            yield None

    def loading(self) -> bool:
        """Whether a shard is still being replayed."""
        return any(host.state is HostState.LOADING for host in self._hosts.values())

    def host_of(self, key: str) -> ShardHost | None:
        """Returns the host of the shard of ``key``, in any state; ``None`` if this node doesn't lead the partition."""
        count = self._partition_count()
        return self._hosts.get(partition_for(key, count)) if count else None

    @property
    def hosts(self) -> Iterable[ShardHost]:
        """The hosts of all shards on this node, in any state."""
        return self._hosts.values()

    def stop(self) -> None:
        """Drop every shard."""
        for partition in sorted(self._hosts):
            self.resigned(partition)

    def _undecided(self, partition: int, command: Any, defect: Exception) -> None:
        """Log a defect with its command: once for each place in the code, then only the number of repetitions."""
        self.counts.commands_undecided += 1
        self._defects.say(
            self._events.error,
            "a coordinator's command met a defect",
            (partition, type(command), place_of(defect)),
            partition=partition,
            command=command_text(command),
            exc_info=defect,
        )

    def _dropped(self, partition: int, log: CoordinatorLog, error: BaseException) -> None:
        failed = self._hosts.get(partition)
        delay_ms = RELOAD_DELAY_MS
        if failed is not None and not failed.was_loaded:
            failures = self._failed_loads[partition] = self._failed_loads.get(partition, 0) + 1
            delay_ms = min(RELOAD_DELAY_MS << min(failures - 1, 16), RELOAD_DELAY_MAX_MS)
            self.counts.loads_failed += 1
        else:
            self.counts.shards_dropped += 1
        self._events.warning(
            "coordinator shard dropped", partition=partition, error=str(error), again_in_ms=delay_ms
        )

        def reload() -> None:
            if self._hosts.get(partition) is failed:
                self._build(partition, log)

        self._runtime.call_later(delay_ms, reload)


def gather(completions: list[Completion[Any]]) -> Completion[list[Completion[Any]]]:
    """Completes with all the completions when the last of them is done, even if some have failed."""
    gathered: Completion[list[Completion[Any]]] = Completion()
    left = len(completions)
    if not left:
        gathered.complete([])
        return gathered

    def count_down(_: Completion[Any]) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            gathered.complete(completions)

    for completion in completions:
        completion.when_done(count_down)
    return gathered


LONG_UNITS = 64
"""A longer text is hashed by a sum of products, which takes half the time."""
UNITS_MAX = 32_767
"""Units of the longest string of the protocol."""


@cache
def _powers() -> tuple[int, ...]:
    """Returns the powers of 31, the greatest first. Made for the first long text, so that no start pays for it."""
    powers = [1]
    for _ in range(UNITS_MAX):
        powers.append(powers[-1] * 31 & 0xFFFFFFFF)
    return tuple(reversed(powers))


def java_string_hash(text: str) -> int:
    """Returns Java's ``String.hashCode``: 31·h + unit over the UTF-16 code units, as a signed 32-bit number."""
    data = text.encode("utf-16-be", "surrogatepass")
    units = unpack(f">{len(data) // 2}H", data)
    value = 0
    if LONG_UNITS < len(units) <= UNITS_MAX:
        value = sum(map(mul, units, _powers()[-len(units) :])) & 0xFFFFFFFF
    else:
        for unit in units:
            value = 31 * value + unit & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def partition_for(key: str, partition_count: int) -> int:
    """Returns the partition of a group or a transactional id. Every broker must compute the same, Kafka's too."""
    value = java_string_hash(key)
    return 0 if value == -(1 << 31) else abs(value) % partition_count


def leader_for_key(image: ClusterImage, topic: str, key: str) -> int:
    """Returns the id of the broker whose coordinator has this key; -1 if no broker leads the partition, or the topic
    isn't there."""
    known = image.topics.get(topic)
    return -1 if known is None else known.partitions[partition_for(key, len(known.partitions))].leader
