"""The tree of a simulated ZooKeeper as it is decided, write by write, and what no write may do.

It reads the znodes in a way of its own, so that an error of the plug-in's forms shows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from blumfeld.spi.cluster import BrokerImage, ClusterImage, PartitionImage, TopicImage
from blumfeld.spi.zookeeper import Create, Delete, Operation, Set
from blumfeld.wire.primitives import uuid_bytes
from blumfeld_kit.fakes.znodes import Stamp
from blumfeld_kit.fakes.zookeeper_servers import nobody_looks
from blumfeld_kit.simulation.clients.oracle import ViolationError

BROKERS, TOPICS, DELETIONS = "/brokers/ids/", "/brokers/topics/", "/admin/delete_topics/"
TOPIC_CONFIGS = "/config/topics/"
CONTROLLER, CONTROLLER_EPOCH, PRODUCER_IDS = "/controller", "/controller_epoch", "/latest_producer_id_block"
NO_STATE = -1

Replicas = tuple[int, ...]
_read = msgspec.json.Decoder().decode


class StateWrite(msgspec.Struct, frozen=True):
    """One write of a partition's state."""

    leader: int
    isr: Replicas
    leader_epoch: int
    recovery: int
    version: int
    zxid: int


class TreeImage(msgspec.Struct, frozen=True):
    """The cluster as the tree has it: as much of ``ClusterImage`` as an oracle looks at."""

    brokers: Mapping[int, BrokerImage]
    topics: Mapping[str, TopicImage]


Image = ClusterImage | TreeImage
"""The cluster as a node's metadata, or the tree, shows it."""


class _Topic:
    """One topic's znodes."""

    def __init__(self) -> None:
        self.topic_id = b""
        self.replicas: dict[int, Replicas] = {}
        self.adding: dict[int, Replicas] = {}
        self.removing: dict[int, Replicas] = {}
        self.states: dict[int, StateWrite] = {}
        self.image: TopicImage | None = None
        """Made when it is asked for."""


class TreeOracle:
    """Follows the tree. It keeps the first promise that a write has broken: it must not raise inside of the write."""

    def __init__(self) -> None:
        self.zxid = 0
        """The newest write."""
        self.on_write: Callable[[Operation], None] = nobody_looks
        """Called with each write of the tree."""
        self.failure: ViolationError | None = None
        self.controller: tuple[int, int] | None = None
        """(epoch, node id) of the controller; ``None`` while there is none."""
        self.controllers_elected = 0
        self.czxids: dict[int, int] = {}
        """Registered broker → its epoch."""
        self.brokers_seen = 0
        """The most brokers that were ever registered at one time."""
        self._topics: dict[str, _Topic] = {}
        self._configured: dict[str, None] = {}
        """Topics with a configuration node."""
        self._marked: dict[str, None] = {}
        self._epoch = 0
        self._winner = 0
        """The session that was elected for the newest epoch."""
        self._written: dict[tuple[str, int], dict[int, int]] = {}
        """Partition → version of its state → when it was written."""
        self._image: TreeImage | None = None

    # What others read

    @property
    def image(self) -> TreeImage:
        """The cluster. Topics that are marked to be deleted are gone."""
        if self._image is None:
            brokers = {node_id: _broker(node_id, czxid) for node_id, czxid in self.czxids.items()}
            topics = {
                name: topic.image or _image_of(name, topic)
                for name, topic in self._topics.items()
                if name not in self._marked and topic.topic_id
            }
            self._image = TreeImage(brokers, topics)
        return self._image

    def written(self, topic: str, partition: int, version: int) -> int | None:
        """Return the zxid of the write that gave a partition's state this version, or ``None``."""
        return self._written.get((topic, partition), {}).get(version)

    def unfinished(self) -> str | None:
        """Say what a controller has begun and not ended; ``None`` if nothing."""
        for name in self._marked:
            return f"topic {name} is marked to be deleted, and is still there"
        for name, topic in self._topics.items():
            if list(topic.states) and set(topic.states) != set(topic.replicas):
                return f"topic {name} has {len(topic.replicas)} partitions, and states of {len(topic.states)}"
            if topic.adding or topic.removing:
                return f"topic {name} is still reassigned: {topic.adding}, {topic.removing}"
        return None

    # Writes

    def decided(self, operations: Sequence[Operation], stamp: Stamp) -> None:
        """A write is decided, or a session has ended."""
        self.zxid = stamp.zxid
        for operation in operations:
            path = operation.path
            self.on_write(operation)
            # Each node creates the empty node of producer ids.
            if path.startswith((TOPICS, DELETIONS)) or (path == PRODUCER_IDS and isinstance(operation, Set)):
                self._check_writer(path, operation, stamp)
            if path.startswith(TOPICS):
                self._topic(path[len(TOPICS) :].split("/"), operation, stamp)
            elif path.startswith(BROKERS):
                self._broker(int(path[len(BROKERS) :]), operation, stamp)
            elif path.startswith(DELETIONS):
                self._deletion(path[len(DELETIONS) :], operation)
            elif path.startswith(TOPIC_CONFIGS):
                self._config(path[len(TOPIC_CONFIGS) :], operation)
            elif path == CONTROLLER_EPOCH and not isinstance(operation, Delete):
                self._elected(operation, stamp)
            elif path == CONTROLLER:
                self._controller(operation)

    def _check_writer(self, path: str, operation: Operation, stamp: Stamp) -> None:
        if isinstance(operation, Create | Set | Delete) and stamp.session_id != self._winner:
            self._fail(f"{path} was written by session {stamp.session_id:#x}, a controller that is deposed")

    def _elected(self, operation: Operation, stamp: Stamp) -> None:
        if not isinstance(operation, Set):
            return  # the first of all begins it with 0
        epoch = int(operation.data)
        if epoch != self._epoch + 1:
            self._fail(f"{CONTROLLER_EPOCH} became {epoch} behind {self._epoch}")
        self._epoch, self._winner = epoch, stamp.session_id
        self.controllers_elected += 1
        if self.controller is not None:
            self.controller = epoch, self.controller[1]

    def _controller(self, operation: Operation) -> None:
        self.controller = (
            (self._epoch, _read(operation.data)["brokerid"]) if isinstance(operation, Create | Set) else None
        )

    def _broker(self, node_id: int, operation: Operation, stamp: Stamp) -> None:
        if isinstance(operation, Create):
            self.czxids[node_id] = stamp.zxid
            self.brokers_seen = max(self.brokers_seen, len(self.czxids))
        elif isinstance(operation, Delete):
            self.czxids.pop(node_id, None)
        self._image = None

    def _deletion(self, name: str, operation: Operation) -> None:
        if isinstance(operation, Create):
            self._marked[name] = None
        elif isinstance(operation, Delete):
            self._marked.pop(name, None)
            if name in self._topics or name in self._configured:
                self._fail(f"the mark of {name} is gone, and its nodes are there: it is half deleted")
        self._image = None

    def _config(self, name: str, operation: Operation) -> None:
        if isinstance(operation, Create):
            self._configured[name] = None
        elif isinstance(operation, Delete):
            self._configured.pop(name, None)

    def _topic(self, parts: list[str], operation: Operation, stamp: Stamp) -> None:
        name = parts[0]
        if len(parts) == 1:
            if isinstance(operation, Delete):
                del self._topics[name]
            elif isinstance(operation, Create | Set):
                self._assigned(self._topics.setdefault(name, _Topic()), _read(operation.data))
        elif len(parts) == 4:
            number = int(parts[2])
            if isinstance(operation, Delete):
                self._topics[name].states.pop(number, None)
                self._written.pop((name, number), None)
            elif isinstance(operation, Create | Set):
                self._stated(name, number, operation, stamp)
        else:
            return
        if name in self._topics:
            self._topics[name].image = None
        self._image = None

    def _assigned(self, topic: _Topic, node: Mapping[str, Any]) -> None:
        topic.topic_id = uuid_bytes(node["topic_id"])
        topic.replicas = _by_number(node["partitions"])
        topic.adding = _by_number(node["adding_replicas"])
        topic.removing = _by_number(node["removing_replicas"])

    def _stated(self, name: str, number: int, operation: Create | Set, stamp: Stamp) -> None:
        topic, node, at = self._topics[name], _read(operation.data), f"{name}-{number}"
        before = topic.states.get(number)
        version = 0 if isinstance(operation, Create) or before is None else before.version + 1
        state = StateWrite(
            node["leader"],
            tuple(node["isr"]),
            node["leader_epoch"],
            node.get("leader_recovery_state", 0),
            version,
            stamp.zxid,
        )
        replicas = topic.replicas.get(number, ())
        if not state.isr or not set(state.isr) <= set(replicas):
            self._fail(f"{at}: the ISR {state.isr} of the replicas {replicas}")
        if state.leader not in (-1, *state.isr):
            self._fail(f"{at}: the leader {state.leader} is not in the ISR {state.isr}")
        if before is not None and (
            state.leader_epoch < before.leader_epoch
            or (state.leader != before.leader and state.leader_epoch == before.leader_epoch)
        ):
            self._fail(f"{at}: a leader epoch doesn't grow: {before}, then {state}")
        topic.states[number] = state
        self._written.setdefault((name, number), {})[version] = stamp.zxid

    def _fail(self, reason: str) -> None:
        self.failure = self.failure or ViolationError(f"the tree: {reason}")


def _by_number(replicas: Mapping[str, Sequence[int]]) -> dict[int, Replicas]:
    return {int(number): tuple(ids) for number, ids in replicas.items()}


def _broker(node_id: int, czxid: int) -> BrokerImage:
    return BrokerImage(broker_id=node_id, epoch=czxid, incarnation_id=bytes(16), endpoints=())


def _image_of(name: str, topic: _Topic) -> TopicImage:
    nothing = StateWrite(-1, (), NO_STATE, 0, NO_STATE, 0)
    partitions = {}
    for number in sorted(topic.replicas):
        state = topic.states.get(number, nothing)
        partitions[number] = PartitionImage(
            partition=number,
            replicas=topic.replicas[number],
            isr=state.isr,
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            partition_epoch=state.version,
            adding_replicas=topic.adding.get(number, ()),
            removing_replicas=topic.removing.get(number, ()),
            leader_recovery_state=state.recovery,
        )
    topic.image = TopicImage(name=name, topic_id=topic.topic_id, partitions=partitions)
    return topic.image
