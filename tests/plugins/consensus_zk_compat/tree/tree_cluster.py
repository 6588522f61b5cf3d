"""The pure controller over a tree: its steps become writes, and the next controller begins with the tree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from blumfeld.config.values import BrokerConfig
from blumfeld.metadata.controller import Controller
from blumfeld.metadata.decision import ControllerDecision, Moment
from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.spi.cluster import Endpoint, PartitionImage, TopicImage
from blumfeld.spi.steps import drained
from blumfeld.spi.zookeeper import Create, Delete, Set
from blumfeld.wire.messages.metadata_records import (
    AccessControlEntryRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
)
from blumfeld.wire.schema import Message
from blumfeld_consensus_zk_compat.controller.broker_lives import broker_came, broker_went, elect_left_over
from blumfeld_consensus_zk_compat.controller.decided_steps import replayed
from blumfeld_consensus_zk_compat.tree import paths
from blumfeld_consensus_zk_compat.tree.forms import (
    BrokerNode,
    ControllerNode,
    broker_record,
    encode_broker,
    encode_controller,
    encode_epoch,
)
from blumfeld_consensus_zk_compat.tree.loading import Loaded, loaded, subtree
from blumfeld_consensus_zk_compat.tree.writing import Multi, TreeWriter
from tests.plugins.consensus_zk_compat.tree.tree_session import (
    REQUEST_BYTES_MAX,
    TreeSession,
    at_once,
    session_of,
)


class Crashed(Exception):  # noqa: N818 - it is what a test does
    """The controller has ended between two writes."""


class TreeCluster:
    """A cluster whose state is in a tree."""

    def __init__(self, *brokers: int, request_bytes_max: int = REQUEST_BYTES_MAX) -> None:
        self.session = TreeSession()
        self.request_bytes_max = request_bytes_max
        self.writes_left: int | None = None
        """So many writes, then the controller crashes."""
        self._uuids = 0
        for path in paths.PERSISTENT:
            self.session.put(path)
        for broker_id in brokers:
            self.register(broker_id)
        self.fail_over()

    @property
    def image(self) -> MetadataImage:
        return self.controller.image

    def register(self, broker_id: int) -> int:
        """Make a broker's node; its epoch."""
        endpoint = Endpoint("PLAINTEXT", "127.0.0.1", 9000 + broker_id)
        return self.session.put(paths.broker(broker_id), encode_broker(BrokerNode(endpoints=(endpoint,))))

    def load(self) -> Loaded:
        return at_once(loaded(session_of(self.session)))

    def fail_over(self) -> Loaded:
        """The next controller takes the tree over, and finishes what can be finished at once."""
        self.writes_left = None
        read = self.load()
        self.epoch = read.controller_epoch + 1
        if read.versions.controller_epoch < 0:
            self.session.change(Create(paths.CONTROLLER_EPOCH, encode_epoch(self.epoch)))
        else:
            self.session.change(Set(paths.CONTROLLER_EPOCH, encode_epoch(self.epoch)))
        if read.controller is not None:
            self.session.change(Delete(paths.CONTROLLER))
        self.session.change(Create(paths.CONTROLLER, encode_controller(ControllerNode(1))))
        read.versions.controller_epoch += 1
        self.writer = TreeWriter(read.versions, self.epoch, self.request_bytes_max)
        self.controller = Controller(read.image, BrokerConfig())
        self.marked = {topic.name: topic for topic in read.marked}
        self.carry_out(elect_left_over(self.controller.state, self.moment()))
        return read

    def moment(self) -> Moment:
        return Moment(
            now_ms=0.0,
            wall_ms=0,
            next_offset=self.image.offset + 1,
            new_uuid=self._new_uuid,
            new_secret=bytes,
        )

    def do(self, request: Message) -> Any:
        """Decide on a request, and write; the response."""
        return self.carry_out(self.controller.command(request, self.moment())).response

    def decide(self, decide: Callable[..., ControllerDecision], **arguments: Any) -> None:
        self.carry_out(decide(self.controller.state, self.moment(), **arguments))

    def carry_out(self, decision: ControllerDecision) -> ControllerDecision:
        self.place(decision.records)
        while decision.rest is not None:
            decision = decision.rest(self.controller.state, self.moment())
            self.place(decision.records)
        return decision

    def place(self, records: Sequence[Message]) -> None:
        """Replay records, and write what they change."""
        for step in drained(replayed(self.image, records, self.epoch)):
            self.marked.update((topic.name, topic) for topic in step.change.topics_deleted)
            self.write(self.writer.multis(step.change, self.image))

    def write(self, multis: Sequence[Multi]) -> None:
        for multi in multis:
            if self.writes_left is not None:
                if not self.writes_left:
                    raise Crashed
                self.writes_left -= 1
            self.session.multi(multi).result()

    def come(self, broker_id: int) -> None:
        """A broker's process registers, in place of the one before it."""
        if broker_id in self.image.brokers:
            self.go(broker_id)
        epoch = self.register(broker_id)
        self.decide(broker_came, registration=self.registration(broker_id, epoch))

    def go(self, broker_id: int) -> None:
        """A broker's node goes."""
        epoch = self.image.brokers[broker_id].epoch
        self.session.change(Delete(paths.broker(broker_id)))
        self.decide(broker_went, broker_id=broker_id, broker_epoch=epoch)

    def registration(self, broker_id: int, epoch: int) -> RegisterBrokerRecord:
        endpoint = Endpoint("PLAINTEXT", "127.0.0.1", 9000 + broker_id)
        return broker_record(broker_id, BrokerNode(endpoints=(endpoint,)), epoch)

    def remove(self, name: str) -> None:
        """No replica of a marked topic is left: it goes from the tree."""
        nodes = at_once(subtree(session_of(self.session), paths.topic(name)))
        self.write(self.writer.removal(name, nodes))
        del self.marked[name]

    def _new_uuid(self) -> bytes:
        self._uuids += 1
        return self.epoch.to_bytes(8) + self._uuids.to_bytes(8)


def in_tree(image: MetadataImage) -> dict[str, Any]:
    """The part of an image that a tree keeps: no directories, no ids of ACLs, no incarnations."""
    acls = [record for record in image.kept.values() if isinstance(record, AccessControlEntryRecord)]
    producer_ids = image.producer_ids or ProducerIdsRecord()
    return {
        "topics": {
            name: (topic.topic_id, {number: bare(at) for number, at in topic.partitions.items()})
            for name, topic in image.topics.items()
        },
        "order": list(image.topics),
        "brokers": {
            broker_id: (broker.epoch, broker.endpoints, broker.rack, broker.fenced)
            for broker_id, broker in image.brokers.items()
        },
        "configs": image.configs,
        "kept": {
            key: value for key, value in image.kept.items() if not isinstance(value, AccessControlEntryRecord)
        },
        "acls": {
            (
                acl.resource_type,
                acl.resource_name,
                acl.pattern_type,
                acl.principal,
                acl.host,
                acl.operation,
                acl.permission_type,
            )
            for acl in acls
        },
        "producer ids": (producer_ids.broker_id, producer_ids.next_producer_id),
        "features": image.features,
    }


def bare(partition: PartitionImage) -> PartitionImage:
    """A partition as a tree keeps it."""
    return msgspec.structs.replace(partition, directories=())


def partitions_of(topic: TopicImage) -> dict[int, PartitionImage]:
    """A topic's partitions as a tree keeps them."""
    return {number: bare(at) for number, at in topic.partitions.items()}
