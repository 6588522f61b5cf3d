"""Configurations, quotas, credentials and feature levels of the node's image, kept up with the tree.

Whoever writes an entity below ``/config`` leaves a node in ``/config/changes``, which every node watches. Such a node
goes after fifteen minutes, as in Kafka. A session that begins anew may have missed some, and so it reads every entity
again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.spi.completion import Completion, Steps
from blumfeld.spi.hooks import EventLog
from blumfeld.spi.runtime import Runtime, Task
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
from blumfeld_consensus_zk_compat.node.image import NodeImage
from blumfeld_consensus_zk_compat.tree import paths
from blumfeld_consensus_zk_compat.tree.forms import TreeError, decode_feature
from blumfeld_consensus_zk_compat.tree.forms_configs import decode_config, decode_config_change
from blumfeld_consensus_zk_compat.tree.image_entities import changed_entity, changed_features
from blumfeld_consensus_zk_compat.tree.loading import entity_records

CHANGE_LASTS_MS = 15 * 60 * 1_000
RETRY_MS = 500
"""Pause before the next look after a lost connection, or a node that can't be read."""

EntityRead = Callable[[str, Mapping[str, str], int | None], None]
"""(entity, its values, the version of its node, ``None`` if it has none)."""


class Configuration:
    """Follows the tree in one session, from :meth:`begin` to :meth:`stop`.

    :param read: is told of each entity that was read, for a controller in this node
    """

    def __init__(
        self, *, zookeeper: ZooKeeper, runtime: Runtime, events: EventLog, image: NodeImage, read: EntityRead
    ) -> None:
        self._zookeeper = zookeeper
        self._runtime = runtime
        self._events = events
        self._image = image
        self._read = read
        self._seen: dict[str, int] = {}
        """Names of ``/config/changes`` that were looked at, and when each was created."""
        self._unread: dict[str, None] = {}
        """Entities that could not be read."""
        self._changed: Completion[None] = Completion()
        self._task: Task | None = None

    async def note_changes(self) -> None:
        """Note what was changed before the tree is loaded: it will be in it."""
        self._seen = dict.fromkeys(await self._children(paths.CONFIG_CHANGES), self._runtime.now_ms())

    def begin(self, *, again: bool = False) -> None:
        """Follow from now on.

        :param again: an earlier session followed before: read everything
        """
        self._task = self._runtime.spawn(self._follow(again), "follow configurations")

    def stop(self) -> None:
        """Follow no more."""
        if self._task is not None:
            self._task.cancel()

    def topics(self, names: Sequence[str]) -> Completion[list[Message]]:
        """The configuration of topics that the image doesn't have yet, as records. A topic without one has none."""
        return self._runtime.scheduler.completed(Lane.METADATA, self._topics(names))

    def _topics(self, names: Sequence[str]) -> Steps[list[Message]]:
        reads = [(name, self._zookeeper.get(paths.config(f"topics/{name}"))) for name in names]
        records: list[Message] = []
        for name, read in reads:
            try:
                node: Node = yield from waited(read)
                values = decode_config(paths.config(f"topics/{name}"), node.data)
                records += entity_records(f"topics/{name}", values)
            except NoNodeError:
                continue
            except (ZooKeeperError, TreeError) as error:
                # Until it can be read, the topic has the defaults.
                self._events.warning("a topic's configuration can't be read", topic=name, error=str(error))
                self._unread[f"topics/{name}"] = None
                self._look_again()
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
                await self._pause()
                continue
            await self._changed

    def _event(self, _: WatchEvent) -> None:
        self._look_again()

    def _look_again(self) -> None:
        if not self._changed.done:
            self._changed.complete(None)

    async def _children(self, path: str, watch: Watch | None = None) -> tuple[str, ...]:
        try:
            return await self._zookeeper.children(path, watch)
        except NoNodeError:
            return ()

    async def _read_changes(self) -> None:
        names = await self._children(paths.CONFIG_CHANGES, self._event)
        entities = dict.fromkeys(self._unread)
        seen: dict[str, int] = {}
        for name in names:
            path = f"{paths.CONFIG_CHANGES}/{name}"
            created_ms = self._seen.get(name)
            if created_ms is None:
                try:
                    node = await self._zookeeper.get(path)
                except NoNodeError:
                    continue
                created_ms = node.stat.ctime_ms
                try:
                    entities[decode_config_change(path, node.data)] = None
                except TreeError as error:
                    self._can_not_be_read(error)
            seen[name] = created_ms
            if self._runtime.now_ms() - created_ms > CHANGE_LASTS_MS:
                self._zookeeper.delete(path)  # whoever is first; the others find it gone
        await self._read_entities(list(entities))
        for entity in entities:
            self._unread.pop(entity, None)
        self._seen = seen

    async def _read_all(self) -> None:
        entities: list[str] = []
        for kind in paths.CONFIG_KINDS:
            names = await self._children(paths.config(kind))
            entities += (f"{kind}/{name}" for name in names)
        for user in [entity for entity in entities if entity.startswith("users/")]:
            names = await self._children(f"{paths.config(user)}/clients")
            entities += (f"{user}/clients/{name}" for name in names)
        await self._read_entities(entities)

    async def _read_entities(self, entities: Sequence[str]) -> None:
        reads = [(entity, self._zookeeper.get(paths.config(entity))) for entity in entities]
        for entity, read in reads:
            try:
                await self._take_entity(entity, read)
            except TreeError as error:
                self._can_not_be_read(error)

    async def _take_entity(self, entity: str, read: Completion[Node]) -> None:
        values: Mapping[str, str] = {}
        version = None
        try:
            node = await read
            values, version = decode_config(paths.config(entity), node.data), node.stat.version
        except NoNodeError:
            pass
        await self._image.step(partial(entity_step, entity, values))
        self._read(entity, values, version)

    async def _read_features(self) -> None:
        levels: Mapping[str, int] = {}
        version = -1
        if await self._zookeeper.exists(paths.FEATURE, self._event) is not None:
            node = await self._zookeeper.get(paths.FEATURE)
            try:
                feature = decode_feature(paths.FEATURE, node.data)
            except TreeError as error:
                self._can_not_be_read(error)
                return
            levels, version = feature.levels if feature.enabled else {}, node.stat.version
        if version != self._image.image.features_epoch:
            await self._image.features(version, lambda image: changed_features(image, levels))

    def _can_not_be_read(self, error: TreeError) -> None:
        """The node keeps what it has until somebody writes something else there."""
        self._events.error("a node of the tree can't be read", error=str(error))

    async def _pause(self) -> None:
        over: Completion[None] = Completion()
        self._runtime.call_later(RETRY_MS, lambda: over.complete(None))
        await over


def entity_step(entity: str, values: Mapping[str, str], image: MetadataImage) -> Steps[Sequence[Message]]:
    """A step of the image that gives an entity these values and no others."""
    yield from ()
    return changed_entity(image, entity, values)
