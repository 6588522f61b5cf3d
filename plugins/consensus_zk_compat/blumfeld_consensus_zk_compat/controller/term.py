"""One term of a controller: its take-over of the tree, and what it sees there until it ends.

The take-over finishes what an earlier controller left: deletions that are marked, partitions without a state, brokers
that went, partitions without a leader, reassignments. Then the brokers are told.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol, TypeVar

from blumfeld.config.values import BrokerConfig
from blumfeld.metadata.controller import Controller
from blumfeld.metadata.decision import ControllerDecision, ControllerState, Moment
from blumfeld.spi.cluster import PartitionImage, TopicImage
from blumfeld.spi.completion import Completion, Steps
from blumfeld.spi.hooks import EventLog, Feature
from blumfeld.spi.runtime import Runtime, Task, Timer, pause
from blumfeld.spi.scheduler import Lane
from blumfeld.spi.steps import waited
from blumfeld.spi.storage import TopicPartition
from blumfeld.spi.zookeeper import (
    Check,
    ConnectionLostError,
    Delete,
    Node,
    NoNodeError,
    SessionExpiredError,
    Watch,
    ZooKeeper,
)
from blumfeld.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from blumfeld.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from blumfeld.wire.schema import Message
from blumfeld_consensus_zk_compat.change import Change
from blumfeld_consensus_zk_compat.controller.active_controller import ActiveController, Part
from blumfeld_consensus_zk_compat.controller.broker_lives import (
    NO_RESPONSE,
    brokers_went_before,
    came_again,
    elect_left_over,
    end_reassignments,
    first_states_open,
    nothing,
    states_read,
)
from blumfeld_consensus_zk_compat.controller.election import Elected
from blumfeld_consensus_zk_compat.controller.watched_nodes import (
    RETRY_MS,
    Read,
    TopicWatches,
    WatchedNode,
    broker_news,
    seen_brokers,
)
from blumfeld_consensus_zk_compat.ports import Pushes, ReplicaFailed, StaleController
from blumfeld_consensus_zk_compat.tree import paths
from blumfeld_consensus_zk_compat.tree.forms import TreeError
from blumfeld_consensus_zk_compat.tree.forms_topics import (
    decode_log_dir_event,
    decode_partitions,
    decode_reassignments,
    decode_state,
)
from blumfeld_consensus_zk_compat.tree.limits import check_fits
from blumfeld_consensus_zk_compat.tree.loading import Loaded, subtree
from blumfeld_consensus_zk_compat.tree.told_nodes import changed_node
from blumfeld_consensus_zk_compat.tree.writing import Multi, TreeWriter

T = TypeVar("T")
SLICE_PARTITIONS = 256
"""Partitions of one step of the take-over that is not written."""
READS = 256
"""Topics that are read at once."""
TOPICS_PAUSE_MS = 1_000
"""Pause before the names of all topics are read again. They are read to see what others wrote by hand."""
REASSIGNED_LOOK_MS = 1_000
"""Pause between two looks whether what ``/admin/reassign_partitions`` asked for has ended."""


class MakePushes(Protocol):
    """Makes the pushes of one controller."""

    def __call__(self, *, replica_failed: ReplicaFailed, stale_controller: StaleController) -> Pushes:
        """Make them; nothing is sent before ``begin``."""
        ...


class TopicsChanged(Exception):  # noqa: N818 - it is no error of the tree
    """Somebody else has written topics: the tree must be read again."""


class Term:
    """From the moment when the tree was loaded to :meth:`stop`.

    :param tree: as loaded after the election
    :param load_ms: how long that took
    :param topics: the watches that were left by the load
    :param stale: is told that a broker knows a later controller
    :param dropped: is told of the error that ended the term
    :param fenced: is told of each write that was refused because this controller's time was over
    """

    def __init__(
        self,
        *,
        elected: Elected,
        tree: Loaded,
        load_ms: float,
        topics: TopicWatches,
        zookeeper: ZooKeeper,
        chroot: str,
        runtime: Runtime,
        events: EventLog,
        config: BrokerConfig,
        features: Sequence[Feature],
        make_pushes: MakePushes,
        stale: StaleController,
        dropped: Callable[[BaseException], None],
        fenced: Callable[[], None],
    ) -> None:
        self._zookeeper = zookeeper
        self._runtime = runtime
        self._events = events
        self._tree = tree
        self._load_ms = load_ms
        self._began_ms = runtime.monotonic_ms()
        self._topics = topics
        self._tasks: list[Task] = []
        self._check = Check(paths.CONTROLLER_EPOCH, elected.epoch_version)
        self._writer = TreeWriter(tree.versions, elected.id.epoch, zookeeper.request_bytes_max, chroot)
        self._controller = Controller(tree.image, config, features)
        self._watched: list[WatchedNode] = []
        self._timer: Timer | None = None
        self._later: dict[str, Timer] = {}
        """Nodes that are to be read when the connection is there again."""
        self._dropped = dropped
        self._brokers = dict(tree.image.registrations)
        """The registrations that the controller was told of."""
        self.active = ActiveController(
            elected=elected,
            zookeeper=zookeeper,
            runtime=runtime,
            events=events,
            controller=self._controller,
            pushes=make_pushes(
                replica_failed=self._replicas_failed,
                stale_controller=stale,
            ),
            multis_of=self._multis,
            remove_topic=self._remove_topic,
            check=self._check_fits,
            dropped=self._end,
            fenced=fenced,
        )

    def stop(self) -> None:
        """Decide no more. What waits gets NOT_CONTROLLER."""
        for watched in self._watched:
            watched.stop()
        for task in self._tasks:
            task.cancel()
        for timer in (self._timer, *self._later.values()):
            if timer is not None:
                timer.cancel()
        self.active.stop()

    def node_changed(self, path: str) -> None:
        """Somebody has written a configuration, perhaps this controller: read it."""
        # Requests of one session take effect in order, so what was planned until now is in the answer.
        planned = self._writer.versions.nodes.get(path)

        def read(done: Completion[Node]) -> None:
            if done.error is None:
                node = done.result()
                self._learn(path, planned, node.data, node.stat.version)
            elif isinstance(done.error, NoNodeError):
                self._learn(path, planned, None, None)
            elif isinstance(done.error, ConnectionLostError):
                self._later[path] = self._runtime.call_later(RETRY_MS, partial(self.node_changed, path))

        self._later.pop(path, None)
        self._zookeeper.get(path).when_done(read)

    def _learn(self, path: str, planned: int | None, data: bytes | None, version: int | None) -> None:
        """Take what a node says, unless this controller has planned a write of it since the read was sent."""
        versions = self._writer.versions

        def learn(state: ControllerState, _: Moment) -> ControllerDecision:
            records: Sequence[Message] = ()
            if versions.nodes.get(path) != planned:
                self.node_changed(path)
            else:
                with suppress(TreeError):  # the node that follows says so
                    records = changed_node(state.image, versions.acls, path, data)
                self._writer.seen(path, version)
                versions.acls.note(records)
            return ControllerDecision(list(records), NO_RESPONSE, atomic=False)

        self.active.soon(Part(f"what {path} says", learn, is_learned=True))

    def _replicas_failed(self, broker_id: int, partitions: Sequence[TopicPartition]) -> None:
        self.active.replicas_failed(broker_id, partitions)

    def _end(self, error: BaseException) -> None:
        self.stop()
        self._dropped(error)

    # Take-over

    def take_over(self) -> None:
        """Finish what was left. Commands are taken when that is written."""
        active, tree = self.active, self._tree
        active.resume_deletions(tree.marked)
        bare = tree.without_state
        for some in (bare[at : at + SLICE_PARTITIONS] for at in range(0, len(bare), SLICE_PARTITIONS)):
            decide = partial(first_states_open, partitions=some)
            active.happened(Part("first states", decide, is_learned=True))
        active.happened(Part("brokers that came again", partial(came_again, members=tree.restarted)))
        active.happened(Part("brokers that went before", brokers_went_before))
        active.happened(Part("left-over elections", elect_left_over))
        active.happened(Part("left-over reassignments", end_reassignments))
        active.happened(Part("end of the take-over", nothing, ended=self._begin, ends_take_over=True))
        self._watch("brokers", self._read_brokers)

    def _begin(self) -> None:
        self.active.begin()
        self._events.info(
            "controller at work",
            epoch=self.active.id.epoch,
            znodes=self._tree.znodes,
            load_ms=round(self._load_ms),
            take_over_ms=round(self._runtime.monotonic_ms() - self._began_ms),
        )
        self._watch("topics", self._read_topics, TOPICS_PAUSE_MS)
        self._tasks.append(self._runtime.spawn(self._follow_topics(), "watch assignments"))
        self._watch("deletions", self._read_deletions)
        self._watch("reassignments", self._read_reassignments)
        self._watch("preferred elections", self._read_elections)
        self._watch("isr changes", self._read_isr_changes)
        self._watch("log directory events", self._read_log_dir_events)

    def _watch(self, name: str, read: Read, pause_ms: float = 0.0) -> None:
        self._watched.append(WatchedNode(self._runtime, name, read, self.active.drop, pause_ms))

    # Writes

    def _multis(self, change: Change) -> Sequence[Multi]:
        return self._writer.multis(change, self._controller.image)

    def _check_fits(self, records: Sequence[Message]) -> None:
        check_fits(records, self._controller.image, self._writer.fits)

    def _remove_topic(self, topic: TopicImage, removed: Callable[[], None]) -> None:
        def steps() -> Steps[None]:
            nodes = yield from subtree(self._zookeeper, paths.topic(topic.name))
            for path in (paths.config(f"topics/{topic.name}"), paths.deletion(topic.name)):
                # Any broker may have written the configuration, and a tool the mark.
                stat = yield from waited(self._zookeeper.exists(path))
                self._writer.seen(path, None if stat is None else stat.version)
            self.active.writes.send(self._writer.removal(topic.name, nodes), removed)

        def finished(_: None, error: BaseException | None) -> None:
            if error is not None:
                self.active.drop(error)

        self._runtime.scheduler.run(Lane.METADATA, steps(), finished)

    def _delete(self, path: str) -> None:
        """Remove a node that asked for something, or told of it. It may be gone."""
        self.active.writes.apart([self._check, Delete(path)])

    # What the tree shows

    async def _children(self, path: str, watch: Watch) -> tuple[str, ...]:
        try:
            return await self._zookeeper.children(path, watch)
        except NoNodeError:
            await self._zookeeper.exists(path, watch)
            return ()

    async def _data(self, path: str, watch: Watch | None = None) -> bytes | None:
        """The content of a node, ``None`` if there is none. With ``watch``: told of its creation, too."""
        if watch is not None and await self._zookeeper.exists(path, watch) is None:
            return None
        try:
            return (await self._zookeeper.get(path)).data
        except NoNodeError:
            return None

    def _decoded(self, decode: Callable[[str, bytes], T], path: str, data: bytes) -> T | None:
        """Returns what a node says; ``None``, and an event, if it can't be read."""
        try:
            return decode(path, data)
        except TreeError as error:
            self._events.error("a node can't be read, and is left alone", error=str(error))
            return None

    async def _read_brokers(self, watch: Watch) -> None:
        seen = await seen_brokers(self._zookeeper, watch, self._decoded)
        news = broker_news(self._brokers, seen)
        self._brokers = seen
        for went in news.went:
            self._events.warning("a broker went", broker_id=went.broker_id, broker_epoch=went.broker_epoch)
            self.active.broker_went(went.broker_id, went.broker_epoch)
        for came in news.came:
            self._events.info("a broker came", broker_id=came.broker_id, broker_epoch=came.broker_epoch)
            self.active.broker_came(came, is_new=True)
        for changed in news.changed:
            self.active.broker_came(changed, is_new=False)

    async def _read_topics(self, watch: Watch) -> None:
        """See topics that others create or delete by hand. The tree is read again then, by the next term."""
        # Requests of one session take effect in order: what is known now is in the answer.
        known, is_sent = dict.fromkeys(self._controller.image.topics), not self.active.is_replaying
        names = dict.fromkeys(await self._children(paths.TOPICS, watch))
        for name in known.keys() - names.keys() if is_sent else ():
            if name in self._controller.image.topics:
                raise TopicsChanged(f"{paths.topic(name)} was deleted, and nobody had marked it")
        for name in names.keys() - self._topics.watched:
            if name in known:
                self._topics.look_at(name)
        for name in names.keys() - known.keys():
            if name in self._controller.image.topics or self.active.is_marked(name):
                continue
            if await self._zookeeper.exists(paths.topic(name)) is not None:
                raise TopicsChanged(f"{paths.topic(name)} was created by somebody else")

    async def _follow_topics(self) -> None:
        """See assignments that others write by hand: old tools add partitions so."""
        while True:
            changed = await self._topics.changed()
            for some in (changed[at : at + READS] for at in range(0, len(changed), READS)):
                try:
                    await self._look_at_topics(some)
                except ConnectionLostError:
                    await pause(self._runtime, RETRY_MS)
                    for name in some:
                        self._topics.look_at(name)
                except SessionExpiredError:
                    return
                except Exception as error:
                    self.active.drop(error)
                    return

    async def _look_at_topics(self, changed: Sequence[str]) -> None:
        # Requests of one session take effect in order, so what was planned until now is in the answer.
        versions, get = self._writer.versions.topics, self._zookeeper.get
        reads = [(name, versions.get(name), get(paths.topic(name), self._topics.event)) for name in changed]
        for name, planned, read in reads:
            try:
                node = await read
            except NoNodeError:
                continue
            self._topics.watched.add(name)
            if planned is not None and node.stat.version > planned:
                raise TopicsChanged(f"{paths.topic(name)} was written by somebody else")

    async def _read_deletions(self, watch: Watch) -> None:
        names = await self._children(paths.DELETIONS, watch)
        others = [name for name in names if not self.active.is_marked(name)]
        if not self._controller.state.config.bool("delete.topic.enable"):
            for name in others:
                self._delete(paths.deletion(name))
            return
        self.active.topics_marked([name for name in others if name in self._controller.image.topics])
        for name in others:
            if name not in self._controller.image.topics and not self.active.is_marked(name):
                self._delete(paths.deletion(name))

    async def _read_reassignments(self, watch: Watch) -> None:
        data = await self._data(paths.REASSIGNMENTS, watch)
        asked = None if data is None else self._decoded(decode_reassignments, paths.REASSIGNMENTS, data)
        if asked is None:
            return
        topics: dict[str, list[ReassignablePartition]] = {}
        for at, replicas in asked.items():
            partition = ReassignablePartition(partition_index=at.partition, replicas=list(replicas))
            topics.setdefault(at.topic, []).append(partition)
        request = AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name=name, partitions=them) for name, them in topics.items()]
        )
        self._ask(request, partial(self._look_at_reassigned, tuple(asked)))

    def _look_at_reassigned(self, asked: Sequence[TopicPartition]) -> None:
        """Remove the node when all that it asked for has ended: the tool looks for that."""
        for at in asked:
            topic = self._controller.image.topics.get(at.topic)
            partition = None if topic is None else topic.partitions.get(at.partition)
            if partition is not None and (partition.adding_replicas or partition.removing_replicas):
                look = partial(self._look_at_reassigned, asked)
                self._timer = self._runtime.call_later(REASSIGNED_LOOK_MS, look)
                return
        self._delete(paths.REASSIGNMENTS)

    async def _read_elections(self, watch: Watch) -> None:
        data = await self._data(paths.PREFERRED_ELECTIONS, watch)
        asked = None if data is None else self._decoded(decode_partitions, paths.PREFERRED_ELECTIONS, data)
        if asked is None:
            return
        topics: dict[str, list[int]] = {}
        for at in asked:
            topics.setdefault(at.topic, []).append(at.partition)
        request = ElectLeadersRequest(
            election_type=0,
            topic_partitions=[TopicPartitions(topic=name, partitions=them) for name, them in topics.items()],
        )
        self._ask(request, partial(self._delete, paths.PREFERRED_ELECTIONS))

    def _ask(self, request: Message, ended: Callable[[], None]) -> None:
        def decide(_: ControllerState, moment: Moment) -> ControllerDecision:
            return self._controller.command(request, moment)

        self.active.soon(Part(request, decide, ended=ended))

    async def _read_isr_changes(self, watch: Watch) -> None:
        told, asked = await self._notifications(paths.ISR_CHANGES, watch, decode_partitions)
        states: dict[TopicPartition, PartitionImage] = {}
        reads = {
            at: self._zookeeper.get(paths.state(at.topic, at.partition))
            for at in dict.fromkeys(at for partitions in asked for at in partitions)
        }
        for at, read in reads.items():
            try:
                node = await read
            except NoNodeError:
                continue
            state = self._decoded(decode_state, paths.state(at.topic, at.partition), node.data)
            if state is not None:
                states[at] = PartitionImage(
                    partition=at.partition,
                    replicas=(),
                    isr=state.isr,
                    leader=state.leader,
                    leader_epoch=state.leader_epoch,
                    partition_epoch=node.stat.version,
                )
        if states:
            decide = partial(states_read, states=states)
            self.active.soon(Part("isr changes", decide, is_learned=True))
        for path in told:
            self._delete(path)

    async def _read_log_dir_events(self, watch: Watch) -> None:
        told, brokers = await self._notifications(paths.LOG_DIR_EVENTS, watch, decode_log_dir_event)
        for broker_id in dict.fromkeys(brokers):
            self._events.warning("a broker has lost a log directory", broker_id=broker_id)
            self.active.pushes.resend(broker_id)
        for path in told:
            self._delete(path)

    async def _notifications(
        self, above: str, watch: Watch, decode: Callable[[str, bytes], T]
    ) -> tuple[list[str], list[T]]:
        """Read the notifications that are there: their paths, and what those that can be read say."""
        told = [f"{above}/{name}" for name in await self._children(above, watch)]
        said = []
        for path in told:
            data = await self._data(path)
            decoded = None if data is None else self._decoded(decode, path, data)
            if decoded is not None:
                said.append(decoded)
        return told, said
