"""Topics and replicas that are left at this node, because nobody told it that they are gone.

UpdateMetadata tells of a deletion once, to the brokers of that moment, and a later one with the whole cluster names no
topic that is gone. StopReplica of a reassignment is sent once the tree has its end, and a controller that dies in
between leaves nothing by which the next one would know. So the node looks into the tree once for each pair of
controller and own registration.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.spi.completion import Steps
from blumfeld.spi.hooks import EventLog
from blumfeld.spi.runtime import Runtime, pause
from blumfeld.spi.storage import TopicPartition
from blumfeld.spi.zookeeper import NoNodeError, ZooKeeper, ZooKeeperError
from blumfeld.wire.messages.metadata_records import RemoveTopicRecord
from blumfeld.wire.schema import Message
from blumfeld_consensus_zk_compat.node.control_requests import ControlRequests
from blumfeld_consensus_zk_compat.node.image import NodeImage
from blumfeld_consensus_zk_compat.tree import paths
from blumfeld_consensus_zk_compat.tree.forms_topics import decode_topic

RETRY_MS = 1_000
TOLD_MS = 5_000
"""Time that a controller has to tell everything, before this node asks the tree for replicas that nobody stopped."""


class Leftovers:
    """Removes from the node's image, and from its replicas, what the tree has no more.

    :param session: the session now, ``None`` while there is none
    """

    def __init__(
        self,
        *,
        node_id: int,
        runtime: Runtime,
        events: EventLog,
        image: NodeImage,
        session: Callable[[], ZooKeeper | None],
        orders: ControlRequests,
    ) -> None:
        self._node_id = node_id
        self._runtime = runtime
        self._events = events
        self._image = image
        self._session = session
        self._orders = orders
        self._looked_for = (-1, -1)

    def pushed(self, controller_epoch: int, broker_epoch: int) -> None:
        """A controller tells of the cluster. The first time it knows this registration, the tree is looked into."""
        if (controller_epoch, broker_epoch) != self._looked_for:
            self._looked_for = controller_epoch, broker_epoch
            self._runtime.spawn(self._look(self._looked_for), "look for what is left over")

    async def _look(self, since: tuple[int, int]) -> None:
        await self._until_read(since, self._remove_topics)
        await pause(self._runtime, TOLD_MS)
        await self._until_read(since, self._remove_replicas)

    async def _until_read(self, since: tuple[int, int], read: Callable[[ZooKeeper], Awaitable[None]]) -> None:
        while since == self._looked_for and (session := self._session()) is not None:
            try:
                await read(session)
            except ZooKeeperError:
                await pause(self._runtime, RETRY_MS)
            else:
                return

    async def _remove_topics(self, session: ZooKeeper) -> None:
        # A topic of the image was in the tree when it came into the image. What comes later isn't looked for.
        known = {topic.topic_id: topic.name for topic in self._image.image.topics.values()}
        synced, children = session.sync(paths.TOPICS), session.children(paths.TOPICS)
        await synced
        names = frozenset(await children)
        gone = [topic_id for topic_id, name in known.items() if name not in names]
        if gone:
            self._image.step(partial(_removed, topic_ids=gone))

    async def _remove_replicas(self, session: ZooKeeper) -> None:
        """Delete replicas whose partition has others, by this node's image, and then by the tree."""
        image, suspects = self._image.image, dict[str, list[TopicPartition]]()
        for at, (topic_id, _) in self._orders.placed.items():
            topic = image.topic_by_id(topic_id)
            known = None if topic is None else topic.partitions.get(at.partition)
            if known is not None and self._node_id not in known.replicas:
                suspects.setdefault(at.topic, []).append(at)
        for name, replicas in suspects.items():
            await session.sync(paths.topic(name))
            try:
                node = await session.get(paths.topic(name))
            except NoNodeError:
                continue  # a deletion stops its replicas before
            assignment = decode_topic(paths.topic(name), node.data)
            for at in replicas:
                topic_id, leader_epoch = self._orders.placed.get(at, (b"", -1))
                if (
                    topic_id == assignment.topic_id
                    and self._node_id not in assignment.partitions[at.partition]
                ):
                    self._events.warning("a replica that was moved away is deleted", partition=str(at))
                    self._orders.moved_away(at, leader_epoch)


def _removed(image: MetadataImage, topic_ids: Sequence[bytes]) -> Steps[Sequence[Message]]:
    yield from ()
    return [
        RemoveTopicRecord(topic_id=topic_id)
        for topic_id in topic_ids
        if image.topic_by_id(topic_id) is not None
    ]
