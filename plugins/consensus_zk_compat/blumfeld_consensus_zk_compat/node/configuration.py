"""Configurations, quotas, credentials, ACLs, delegation tokens and feature levels of the node's image, kept up with the
tree.

Whoever writes such a node leaves a notification, which every node watches: in ``/config/changes``,
``/kafka-acl-changes``, ``/kafka-acl-extended-changes`` or ``/delegation_token/token_changes``. It goes
when a node has known it for fifteen minutes. Kafka's brokers compare its time with their clocks, so a wrong clock takes
it from nodes that haven't read it. A session that begins anew may have missed some, and so it reads every node again.

A node that can't be taken is said once, and read again when it changes. Until then this node keeps what it has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.metadata.image.step import BrokenMetadata
from blumfeld.spi.completion import Completion, Steps
from blumfeld.spi.hooks import EventLog
from blumfeld.spi.repeated_events import RepeatedEvents
from blumfeld.spi.runtime import Runtime, Task, pause
from blumfeld.spi.scheduler import Lane
from blumfeld.spi.steps import waited
from blumfeld.spi.zookeeper import (
    ConnectionLostError,
    Node,
    NoNodeError,
    SessionExpiredError,
    Watch,
    WatchEvent,
    ZooKeeper,
    ZooKeeperError,
)
from blumfeld.wire.schema import Message
from blumfeld_consensus_zk_compat.counts import Counts
from blumfeld_consensus_zk_compat.node.image import NodeImage
from blumfeld_consensus_zk_compat.tree import paths
from blumfeld_consensus_zk_compat.tree.forms import TreeError, decode_feature
from blumfeld_consensus_zk_compat.tree.forms_configs import decode_config
from blumfeld_consensus_zk_compat.tree.image_entities import changed_features
from blumfeld_consensus_zk_compat.tree.loading import entity_records
from blumfeld_consensus_zk_compat.tree.told_nodes import NOTIFICATIONS, changed_node, told_node
from blumfeld_consensus_zk_compat.tree.versions import KnownAcls

CHANGE_LASTS_MS = 15 * 60 * 1_000
RETRY_MS = 500
"""Pause before the next look after a lost connection."""
DENIED_RETRY_MS = 30_000
"""Pause before the next look at what this session may not read: a change of its list of rights tells nobody."""

NodeChanged = Callable[[str], None]
"""(path): what is there has changed."""


class Configuration:
    """Follows the tree in one session, from :meth:`begin` to :meth:`stop`.

    :param acls: as the node's image has them; kept up with it
    :param changed: is told of each node that was read, for a controller in this node
    """

    def __init__(
        self,
        *,
        zookeeper: ZooKeeper,
        runtime: Runtime,
        events: EventLog,
        image: NodeImage,
        acls: KnownAcls,
        counts: Counts,
        changed: NodeChanged,
    ) -> None:
        self._zookeeper = zookeeper
        self._runtime = runtime
        self._events = events
        self._repeated = RepeatedEvents(runtime)
        self._image = image
        self._acls = acls
        self._counts = counts
        self._changed_node = changed
        self._seen: dict[str, float] = {}
        """Notifications that were looked at, and when this node saw each first, in monotonic time."""
        self._unread: dict[str, None] = {}
        """Paths that are to be read."""
        self._changed: Completion[None] = Completion()
        self._task: Task | None = None

    async def note_changes(self) -> None:
        """Note what was changed before the tree is loaded: it will be in it."""
        now_ms = self._runtime.monotonic_ms()
        for above in NOTIFICATIONS:
            self._seen.update((f"{above}/{name}", now_ms) for name in await self._children(above))

    def begin(self, *, again: bool = False) -> None:
        """Follow from now on.

        :param again: an earlier session followed before: read everything
        """
        self._unread.update(dict.fromkeys(path for path in self._counts.unreadable if path != paths.FEATURE))
        self._task = self._runtime.spawn(self._follow(again), "follow configurations")

    def stop(self) -> None:
        """Follow no more."""
        if self._task is not None:
            self._task.cancel()

    async def catch_up(self) -> None:
        """Have in the image what anybody was told is written before the call.

        :raises ZooKeeperError: no server is reached, or a list of names may not be read
        """
        await self._zookeeper.sync(paths.CONFIG_CHANGES)
        await self._read_changes()

    def topics(self, names: Sequence[str]) -> Completion[list[Message]]:
        """The configuration of topics that the image doesn't have yet, as records. A topic without one has none."""
        return self._runtime.scheduler.completed(Lane.METADATA, self._topics(names))

    def _topics(self, names: Sequence[str]) -> Steps[list[Message]]:
        reads = [(name, self._zookeeper.get(paths.config(f"topics/{name}"))) for name in names]
        records: list[Message] = []
        for name, read in reads:
            path = paths.config(f"topics/{name}")
            try:
                node: Node = yield from waited(read)
                records += entity_records(f"topics/{name}", decode_config(path, node.data))
            except NoNodeError:
                continue
            except (ZooKeeperError, TreeError):
                # Until it can be read, the topic has the defaults.
                self.look_at(path)
        return records

    async def _follow(self, again: bool) -> None:
        while True:
            self._changed = Completion()
            try:
                if again:
                    await self._read_all()
                    again = False
                await self._read_features()
                await self._read_changes()
            except SessionExpiredError:
                return
            except ConnectionLostError:
                await pause(self._runtime, RETRY_MS)
                continue
            except ZooKeeperError as error:  # a list of names that this session may not read
                said = "changes in the tree can't be followed; tried again"
                self._repeated.say(self._events.error, said, error.path, error=str(error))
                await pause(self._runtime, RETRY_MS)
                continue
            await self._changed

    def _event(self, _: WatchEvent) -> None:
        self._look_again()

    def _look_again(self) -> None:
        if not self._changed.done:
            self._changed.complete(None)

    def look_at(self, path: str) -> None:
        """Have a node read."""
        self._unread[path] = None
        self._look_again()

    async def _children(self, path: str, watch: Watch | None = None) -> tuple[str, ...]:
        """The names below a node. With ``watch``: told of its creation, too."""
        try:
            return await self._zookeeper.children(path, watch)
        except NoNodeError:
            if watch is not None and await self._zookeeper.exists(path, watch) is not None:
                self._look_again()
            return ()

    async def _read_changes(self) -> None:
        changed = dict.fromkeys(self._unread)
        seen: dict[str, float] = {}
        for above in NOTIFICATIONS:
            for name in await self._children(above, self._event):
                await self._read_change(f"{above}/{name}", changed, seen)
        await self._read_nodes(list(changed))
        self._seen = seen

    async def _read_change(self, path: str, changed: dict[str, None], seen: dict[str, float]) -> None:
        now_ms = self._runtime.monotonic_ms()
        seen_ms = self._seen.get(path)
        if seen_ms is None:
            try:
                node = await self._zookeeper.get(path)
            except NoNodeError:
                return
            seen_ms = now_ms
            try:
                changed[told_node(path, node.data)] = None
            except TreeError as error:
                self._events.error(
                    "a notification of a change can't be read, and is left alone", error=str(error)
                )
        seen[path] = seen_ms
        if now_ms - seen_ms > CHANGE_LASTS_MS:
            self._zookeeper.delete(path)  # whoever is first; the others find it gone

    async def _read_all(self) -> None:
        found: list[str] = []
        for kind in paths.CONFIG_KINDS:
            names = await self._children(paths.config(kind))
            found += (paths.config(f"{kind}/{name}") for name in names)
        for user in [path for path in found if path.startswith(paths.config("users/"))]:
            names = await self._children(f"{user}/clients")
            found += (f"{user}/clients/{name}" for name in names)
        for above in (paths.ACLS, paths.PREFIXED_ACLS):
            for kind in await self._children(above):
                names = await self._children(f"{above}/{kind}")
                found += (f"{above}/{kind}/{name}" for name in names)
        found += (paths.token(name) for name in await self._children(paths.TOKENS))
        await self._read_nodes(found)

    async def _read_nodes(self, wanted: Sequence[str]) -> None:
        reads = [(path, self._zookeeper.get(path)) for path in wanted]
        for path, read in reads:
            try:
                await self._take_node(path, read)
            except (ConnectionLostError, SessionExpiredError):
                raise
            except (ZooKeeperError, TreeError, BrokenMetadata) as error:
                await self._can_not_be_taken(path, read, error)
            else:
                self._counts.unreadable.pop(path, None)
            self._unread.pop(path, None)

    async def _take_node(self, path: str, read: Completion[Node]) -> None:
        data = None
        with suppress(NoNodeError):
            data = (await read).data
        await self._image.step(partial(node_step, self._acls, path, data))
        self._changed_node(path)

    async def _can_not_be_taken(self, path: str, read: Completion[Node], error: Exception) -> None:
        """The node keeps what it has until somebody writes something else there."""
        self._counts.unreadable_found(self._events, path, str(error))
        if read.error is not None:
            self._runtime.call_later(DENIED_RETRY_MS, partial(self.look_at, path))
            return
        stat = await self._zookeeper.exists(path, lambda _: self.look_at(path))
        if stat is None or stat.mzxid != read.result().stat.mzxid:
            self.look_at(path)

    async def _read_features(self) -> None:
        levels: Mapping[str, int] = {}
        version = -1
        if await self._zookeeper.exists(paths.FEATURE, self._event) is not None:
            node = await self._zookeeper.get(paths.FEATURE)
            try:
                feature = decode_feature(paths.FEATURE, node.data)
            except TreeError as error:
                self._counts.unreadable_found(self._events, paths.FEATURE, str(error))
                return
            levels, version = feature.levels if feature.enabled else {}, node.stat.version
        self._counts.unreadable.pop(paths.FEATURE, None)
        if version != self._image.image.features_epoch:
            await self._image.features(version, lambda image: changed_features(image, levels))


def node_step(
    acls: KnownAcls, path: str, data: bytes | None, image: MetadataImage
) -> Steps[Sequence[Message]]:
    """A step of a node's image that brings it to what a znode says (``None``: it isn't there).

    :param acls: as the image has them; kept up with it
    """
    yield from ()
    records = changed_node(image, acls, path, data)
    acls.note(records)
    return records
