"""The log's image, followed by the tree and by the brokers that still read it.

Each step of the image is written under the fence of the claim, in order; when the tree has it, the brokers are told.
It writes with the writer of a ZooKeeper's controller, and tells with its pushes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from blumfeld.metadata.brokers.migration import brokers_of_tree, reads_tree
from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.spi.cluster import ImageDelta, PartitionImage
from blumfeld.spi.completion import Completion, Steps
from blumfeld.spi.consensus import Controller as ControllerId
from blumfeld.spi.runtime import Runtime
from blumfeld.spi.scheduler import Lane, Work
from blumfeld.spi.storage import TopicPartition
from blumfeld.spi.zookeeper import ZooKeeper
from blumfeld.wire.errors import ErrorCode
from blumfeld_consensus_zk_compat.change import Change, PartitionStep
from blumfeld_consensus_zk_compat.controller.writes import Writes
from blumfeld_consensus_zk_compat.migration.copying import change_of, missing
from blumfeld_consensus_zk_compat.pushes.controller_pushes import ControllerPushes
from blumfeld_consensus_zk_compat.pushes.plan import TreeTopics
from blumfeld_consensus_zk_compat.tree import paths
from blumfeld_consensus_zk_compat.tree.loading import subtree
from blumfeld_consensus_zk_compat.tree.writing import TreeWriter

ASK_AGAIN_MS = 1_000
"""Pause before a broker is asked again to delete replicas that it could not delete."""
_LASTING = frozenset({ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR})
"""Answers that only the broker's next process changes: the replica is deleted, or its disk is lost."""


class _Step(NamedTuple):
    delta: ImageDelta
    image: MetadataImage
    """The log's, with this step or later ones."""
    offset: int


class Mirror:
    """Made → :meth:`follow` → any number of steps → stopped.

    :param controller: what the pushes name
    :param failed: is told of a write that failed, or of a defect: the tree must be read again
    """

    def __init__(
        self,
        controller: ControllerId,
        *,
        zookeeper: ZooKeeper,
        runtime: Runtime,
        writer: TreeWriter,
        pushes: ControllerPushes,
        failed: Callable[[BaseException], None],
    ) -> None:
        self._controller = controller
        self._zookeeper = zookeeper
        self._runtime = runtime
        self._writer = writer
        self._pushes = pushes
        self._failed = failed
        self._writes = Writes(zookeeper, self._fail, _nothing)
        self._topics = TreeTopics({})
        """As they are written, or soon will be."""
        self._queue: deque[_Step] = deque()
        self._work: Work | None = None
        self._image: MetadataImage | None = None
        """The log's as the brokers were told of it last; ``None`` before they were told."""
        self._told: dict[int, int] = {}
        """The epoch of each broker that has a channel."""
        self._unwritten = 1
        """Steps that the tree doesn't have yet. The first one is what it lacks at the beginning."""
        self._idle: list[Completion[bool]] = []
        self._follows = self._stopped = False
        self.offset = -1
        """The tree has the image up to this offset of the log."""

    def follow(self, tree: MetadataImage, image: MetadataImage) -> None:
        """Write what the tree lacks, then tell the brokers everything. Steps of the image behind this one are given to
        :meth:`changed`.

        :param tree: as it was read; it is used up
        :param image: a copy of the log's, as of this call
        """
        self._follows = True
        self._topics = TreeTopics(tree.topics)
        self._run(self._begin(tree, image))

    def changed(self, image: MetadataImage, delta: ImageDelta) -> None:
        """Take one step of the log's image."""
        if not self._follows or self._stopped:
            return
        self._unwritten += 1
        self._queue.append(_Step(delta, image, image.offset))
        if self._work is None or self._work.done:
            self._run(self._take())

    def written(self) -> Completion[bool]:
        """Completes when the tree has all steps that were given; with ``False`` if the mirror is stopped before."""
        written: Completion[bool] = Completion()
        self._idle.append(written)
        self._settle()
        return written

    def resend(self, broker_id: int) -> None:
        """Tell a broker everything once more: it has lost a directory, and its answer says what is in it."""
        self._pushes.resend(broker_id)

    def stop(self) -> None:
        """Write no more, and tell nobody. What is sent is fenced once the tree is claimed anew."""
        if self._stopped:
            return
        self._stopped = True
        self._queue.clear()
        self._writes.stop()
        self._pushes.stop()
        if self._work is not None:
            self._work.cancel()
        self._settle()

    # Writing

    def _run(self, steps: Steps[None]) -> None:
        self._work = self._runtime.scheduler.run(Lane.METADATA, steps, self._ended)

    def _ended(self, _: None, error: BaseException | None) -> None:
        self._work = None
        if error is not None:
            self._fail(error)
        elif self._queue and not self._stopped:
            self._run(self._take())

    def _fail(self, error: BaseException) -> None:
        if not self._stopped:
            self.stop()
            self._failed(error)

    def _begin(self, tree: MetadataImage, image: MetadataImage) -> Steps[None]:
        change = yield from missing(tree, image, self._topics)
        yield from self._write(change, image, partial(self._begun, image))
        yield from self._take()

    def _take(self) -> Steps[None]:
        while self._queue:
            delta, image, offset = self._queue.popleft()
            change = yield from change_of(delta, self._topics)
            yield from self._write(change, image, partial(self._committed, change, image, offset))
            room = self._writes.room
            yield room

    def _write(self, change: Change, image: MetadataImage, written: Callable[[], None]) -> Steps[None]:
        for topic in change.topics_deleted:
            # Requests of one session take effect in order: what was sent before is in the answer.
            nodes = yield from subtree(self._zookeeper, paths.topic(topic.name))
            self._writes.send(self._writer.removal(topic.name, nodes), _nothing)
        self._writes.send(self._writer.multis(replace(change, topics_deleted=()), image), written)

    # Telling

    def _begun(self, image: MetadataImage) -> None:
        self._image = image
        self._told = {
            broker_id: image.registrations[broker_id].broker_epoch for broker_id in brokers_of_tree(image)
        }
        self._pushes.begin(self._controller, image)
        self._one_written(image.offset)

    def _committed(self, change: Change, image: MetadataImage, offset: int) -> None:
        self._pushes.follow(image)
        for broker_id in change.brokers:
            self._tell_of_broker(image, broker_id)
        self._pushes.committed(change)
        for broker_id in self._told:
            self._stop_replicas(image, change.partitions, broker_id)
        self._one_written(offset)

    def _tell_of_broker(self, image: MetadataImage, broker_id: int) -> None:
        epoch = image.registrations[broker_id].broker_epoch if reads_tree(image, broker_id) else None
        if epoch is not None and self._told.get(broker_id) != epoch:
            self._told[broker_id] = epoch
            self._pushes.broker_came(broker_id)
        elif epoch is None and self._told.pop(broker_id, None) is not None:
            self._pushes.broker_went(broker_id)

    def _stop_replicas(self, image: MetadataImage, steps: Sequence[PartitionStep], broker_id: int) -> None:
        """Have a broker delete the replicas of topics that are gone, and fetch no more where it shuts down and has left
        the ISR: it would be in the way of the high watermark."""
        shuts_down = broker_id in image.brokers and image.brokers[broker_id].in_controlled_shutdown
        gone, left = [], []
        for step in steps:
            if step.before is None:
                continue
            at = TopicPartition(step.topic, step.before.partition)
            if step.after is None and broker_id in step.before.replicas:
                gone.append(at)
            elif step.after is not None and shuts_down and _left(step.before, step.after, broker_id):
                left.append(at)
        if left:
            self._pushes.stop_replicas(broker_id, left, delete=False)
        if gone:
            self._delete(broker_id, gone)

    def _delete(self, broker_id: int, partitions: Sequence[TopicPartition]) -> None:
        asked = self._pushes.stop_replicas(broker_id, partitions, delete=True)
        asked.when_done(partial(self._deleted, broker_id))

    def _deleted(self, broker_id: int, asked: Completion[dict[TopicPartition, ErrorCode]]) -> None:
        if asked.error is not None or self._stopped:
            return  # the broker's next process sets aside what the tree doesn't have
        again = [at for at, code in asked.result().items() if code not in _LASTING]
        if again:
            self._runtime.call_later(ASK_AGAIN_MS, partial(self._delete_again, broker_id, again))

    def _delete_again(self, broker_id: int, partitions: Sequence[TopicPartition]) -> None:
        # A topic of that name may be there again: its replica isn't to be deleted.
        still = [at for at in partitions if at.topic not in self._topics.by_name]
        if still and not self._stopped:
            self._delete(broker_id, still)

    def _one_written(self, offset: int) -> None:
        self.offset = offset
        self._unwritten -= 1
        self._settle()

    def _settle(self) -> None:
        if self._unwritten and not self._stopped:
            return
        idle, self._idle = self._idle, []
        for waiting in idle:
            waiting.complete(not self._stopped)


def _left(before: PartitionImage, after: PartitionImage, broker_id: int) -> bool:
    """Whether a follower has left the ISR."""
    return before.leader != broker_id and broker_id in before.isr and broker_id not in after.isr


def _nothing() -> None:
    return None
