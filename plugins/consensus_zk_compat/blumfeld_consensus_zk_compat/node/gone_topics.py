"""Topics that were deleted while this node had no session, or whose deletion a controller that died had not told it.

UpdateMetadata tells of a deletion once, to the brokers of that moment, and a later one with the whole cluster names no
topic that is gone. So the node looks into the tree once for each pair of controller and own registration.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.spi.completion import Completion, Steps
from blumfeld.spi.runtime import Runtime
from blumfeld.spi.zookeeper import ZooKeeper, ZooKeeperError
from blumfeld.wire.messages.metadata_records import RemoveTopicRecord
from blumfeld.wire.schema import Message
from blumfeld_consensus_zk_compat.node.image import NodeImage
from blumfeld_consensus_zk_compat.tree import paths

RETRY_MS = 1_000


class GoneTopics:
    """Removes from the node's image what the tree has no more.

    :param session: the session now, ``None`` while there is none
    """

    def __init__(
        self, *, runtime: Runtime, image: NodeImage, session: Callable[[], ZooKeeper | None]
    ) -> None:
        self._runtime = runtime
        self._image = image
        self._session = session
        self._looked_for = (-1, -1)

    def pushed(self, controller_epoch: int, broker_epoch: int) -> None:
        """A controller tells of the cluster. The first time it knows this registration, the tree is looked into."""
        if (controller_epoch, broker_epoch) != self._looked_for:
            self._looked_for = controller_epoch, broker_epoch
            self._runtime.spawn(self._look(self._looked_for), "look for topics that are gone")

    async def _look(self, since: tuple[int, int]) -> None:
        while since == self._looked_for and (session := self._session()) is not None:
            # A topic of the image was in the tree when it came into the image. What comes later isn't looked for.
            known = {topic.topic_id: topic.name for topic in self._image.image.topics.values()}
            try:
                synced, children = session.sync(paths.TOPICS), session.children(paths.TOPICS)
                await synced
                names = frozenset(await children)
            except ZooKeeperError:
                pause: Completion[None] = Completion()
                self._runtime.call_later(RETRY_MS, lambda pause=pause: pause.complete(None))  # type: ignore[misc]
                await pause
                continue
            gone = [topic_id for topic_id, name in known.items() if name not in names]
            if gone:
                self._image.step(partial(_removed, topic_ids=gone))
            return


def _removed(image: MetadataImage, topic_ids: Sequence[bytes]) -> Steps[Sequence[Message]]:
    yield from ()
    return [
        RemoveTopicRecord(topic_id=topic_id)
        for topic_id in topic_ids
        if image.topic_by_id(topic_id) is not None
    ]
