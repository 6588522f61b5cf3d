"""Nodes that the controller watches: each is read again whenever its watch ends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, Protocol

from blumfeld.spi.completion import Completion
from blumfeld.spi.runtime import Runtime, Task, pause
from blumfeld.spi.zookeeper import (
    ConnectionLostError,
    NoNodeError,
    SessionExpiredError,
    Watch,
    WatchEvent,
    ZooKeeper,
)
from blumfeld.wire.messages.metadata_records import RegisterBrokerRecord
from blumfeld_consensus_zk_compat.tree import paths
from blumfeld_consensus_zk_compat.tree.forms import BrokerNode, broker_record, decode_broker

RETRY_MS = 200
"""Pause before a read is tried again after the connection was lost."""
_TOPIC = f"{paths.TOPICS}/"
Read = Callable[[Watch], Awaitable[None]]
"""Reads under this watch, and takes what it finds."""


class WatchedNode:
    """Reads at once, and again after each event, until it is stopped.

    :param failed: is told of an error that no other attempt mends
    :param pause_ms: pause behind an event, so that many of them are one read
    """

    def __init__(
        self,
        runtime: Runtime,
        name: str,
        read: Read,
        failed: Callable[[BaseException], None],
        pause_ms: float = 0.0,
    ) -> None:
        self._runtime = runtime
        self._read = read
        self._failed = failed
        self._pause_ms = pause_ms
        self._changed: Completion[None] = Completion()
        self._task: Task = runtime.spawn(self._follow(), f"watch {name}")

    def stop(self) -> None:
        """Read no more."""
        self._task.cancel()

    def _event(self, _: WatchEvent) -> None:
        if not self._changed.done:
            self._changed.complete(None)

    async def _follow(self) -> None:
        while True:
            # Before the read: an event that comes while it is under way means another one.
            self._changed = Completion()
            try:
                await self._read(self._event)
            except SessionExpiredError:
                return
            except ConnectionLostError:
                await pause(self._runtime, RETRY_MS)
                continue
            except Exception as error:
                self._failed(error)
                return
            await self._changed
            if self._pause_ms:
                await pause(self._runtime, self._pause_ms)


class TopicWatches:
    """The watches over the nodes of all topics. The load of the tree leaves the first ones, because to read all topics
    once more would take as long again.
    """

    def __init__(self) -> None:
        self.watched: set[str] = set()
        """Topics whose node was read with a watch."""
        self._changed: dict[str, None] = {}
        self._told: Completion[None] = Completion()

    def watch_of(self, path: str) -> Watch | None:
        """A ``WatchOf`` for the load: of topics only."""
        if not path.startswith(_TOPIC):
            return None
        self.watched.add(path.removeprefix(_TOPIC))
        return self.event

    def event(self, event: WatchEvent) -> None:
        """Note a topic whose node was written, or whose watch was lost."""
        name = event.path.removeprefix(_TOPIC)
        self.watched.discard(name)
        self.look_at(name)

    def look_at(self, name: str) -> None:
        """Have a topic's node read."""
        self._changed[name] = None
        if not self._told.done:
            self._told.complete(None)

    async def changed(self) -> list[str]:
        """Returns the topics whose nodes are to be read, when there are some."""
        if not self._changed:
            self._told = Completion()
            await self._told
        changed, self._changed = list(self._changed), {}
        return changed


class DecodeNode(Protocol):
    """(decode, path, data) → what the node says; ``None``, and an event, if it can't be read."""

    def __call__(
        self, decode: Callable[[str, bytes], BrokerNode], path: str, data: bytes, /
    ) -> BrokerNode | None:
        """Decode it."""
        ...


async def seen_brokers(
    zookeeper: ZooKeeper, watch: Watch, decoded: DecodeNode
) -> dict[int, RegisterBrokerRecord]:
    """Read the registrations that are there, and leave watches."""
    try:
        names = await zookeeper.children(paths.BROKERS, watch)
    except NoNodeError:
        await zookeeper.exists(paths.BROKERS, watch)
        names = ()
    reads = [(int(name), zookeeper.get(f"{paths.BROKERS}/{name}", watch)) for name in names if name.isdigit()]
    seen = {}
    for broker_id, read in reads:
        try:
            node = await read
        except NoNodeError:
            continue
        registration = decoded(decode_broker, paths.broker(broker_id), node.data)
        if registration is not None:
            seen[broker_id] = broker_record(broker_id, registration, node.stat.czxid)
    return seen


class BrokerNews(NamedTuple):
    """The difference between two looks at ``/brokers/ids``."""

    went: tuple[RegisterBrokerRecord, ...]
    """Registrations that are gone, also where the id has another one by now."""
    came: tuple[RegisterBrokerRecord, ...]
    changed: tuple[RegisterBrokerRecord, ...]
    """The same processes, with other listeners."""


def broker_news(
    known: Mapping[int, RegisterBrokerRecord], seen: Mapping[int, RegisterBrokerRecord]
) -> BrokerNews:
    """Compare two looks. Two registrations of one id are one only if they have the same epoch: between the looks the
    process may have ended, and the next one have registered.
    """

    def is_there(registration: RegisterBrokerRecord, others: Mapping[int, RegisterBrokerRecord]) -> bool:
        other = others.get(registration.broker_id)
        return other is not None and other.broker_epoch == registration.broker_epoch

    return BrokerNews(
        tuple(one for one in known.values() if not is_there(one, seen)),
        tuple(one for one in seen.values() if not is_there(one, known)),
        tuple(one for one in seen.values() if is_there(one, known) and one != known[one.broker_id]),
    )
