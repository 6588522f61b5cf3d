"""A broker on virtual time over storage in memory, with a cluster of one that answers what the broker asks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import msgspec
import pytest

from blumfeld.broker.broker import Broker
from blumfeld.broker.composition import BrokerComposition
from blumfeld.broker.replicas.partition import Partition
from blumfeld.config.values import BrokerConfig
from blumfeld.coordinator.runtime.coordinator import gather
from blumfeld.spi.cluster import (
    TOPIC_RESOURCE,
    BrokerImage,
    Endpoint,
    ImageDelta,
    PartitionImage,
    TopicImage,
)
from blumfeld.spi.completion import Completion
from blumfeld.spi.consensus import Controller, ImageListener, OnBehalf, Quorum, ReplicaDriver
from blumfeld.spi.parts import Parts, join, release
from blumfeld.spi.quotas import ClientQuotas
from blumfeld.spi.replication import LeaderReplica
from blumfeld.spi.security import Authorizer
from blumfeld.spi.storage import LogStorage, TopicPartition
from blumfeld.spi.transport import ByteLayer, Exchange, Listener
from blumfeld.wire.api import response_class
from blumfeld.wire.codec import decode, encode
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.headers import put_request_header, response_body_offset
from blumfeld.wire.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from blumfeld.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    ResponseDirectoryData,
    ResponsePartitionData,
    ResponseTopicData,
)
from blumfeld.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from blumfeld.wire.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from blumfeld.wire.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from blumfeld.wire.messages.produce import PartitionProduceResponse
from blumfeld.wire.schema import Message
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_replication_isr.replication import IsrReplication
from tests.broker.batches import batch, produce
from tests.broker.plain_storage import PlainLog, PlainStorage

M = TypeVar("M", bound=Message)
T = TypeVar("T")
NODE = 1
LISTENER = Listener(name="PLAINTEXT", kind="broker", host="127.0.0.1", port=9092)
CONTROLLER_LISTENER = Listener(name="CONTROLLER", kind="controller", host="127.0.0.1", port=9093)


def partition_image(
    index: int = 0,
    *,
    replicas: tuple[int, ...] = (NODE,),
    isr: tuple[int, ...] | None = None,
    leader: int = NODE,
    epoch: int = 0,
    partition_epoch: int = 1,
    directories: tuple[bytes, ...] = (),
) -> PartitionImage:
    """A partition as the controller decided on it. Every replica is in sync unless ``isr`` says otherwise."""
    return PartitionImage(
        partition=index,
        replicas=replicas,
        isr=replicas if isr is None else isr,
        leader=leader,
        leader_epoch=epoch,
        partition_epoch=partition_epoch,
        directories=directories,
    )


def failing(error: BaseException) -> Callable[..., Any]:
    """Returns a function that raises the error, whatever its arguments are."""

    def fail(*_: object, **__: object) -> Any:
        raise error

    return fail


class FakeImage:
    """``ClusterImage`` as plain dicts."""

    def __init__(self) -> None:
        self.cluster_id = "AAAAAAAAAAAAAAAAAAAAAA"
        self.brokers: dict[int, BrokerImage] = {}
        self.topics: dict[str, TopicImage] = {}
        self.features: dict[str, int] = {"metadata.version": 30}
        self.features_epoch = 5
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.controllers: list[tuple[int, Endpoint]] = []

    def controller_endpoints(self, listener: str) -> list[tuple[int, Endpoint]]:
        return [(one, at) for one, at in self.controllers if at.listener == listener]

    def topic_by_id(self, topic_id: bytes) -> TopicImage | None:
        return next((t for t in self.topics.values() if t.topic_id == topic_id), None)

    def config(self, resource_type: int, name: str) -> Mapping[str, str]:
        return self.configs.get((resource_type, name), {})

    def configured(self, resource_type: int) -> tuple[str, ...]:
        return tuple(sorted(name for kind, name in self.configs if kind == resource_type))

    def section(self, name: str) -> Any:
        raise KeyError(name)


class FakeMetadata:
    """A controller that says yes. ``refuse`` makes it fail with an error for the next command."""

    replica_driver = ReplicaDriver.IMAGE
    forwards = True

    def __init__(self) -> None:
        self.image = FakeImage()
        self.controller: Controller | None = Controller(NODE, 1)
        self.commands: list[Message] = []
        self.on_behalf: list[OnBehalf | None] = []
        """For each command its client, and in the next list whether it waits for the image."""
        self.waited_for_image: list[bool] = []
        self.refuse: ErrorCode | None = None
        self.answers: dict[type[Message], Callable[[Any], Message | None]] = {}
        """What the controller decides on commands of these kinds; ``None`` leaves the usual answer."""
        self.held: list[Completion[Message]] | None = None
        """With a list, the answers wait in it for the test to complete them."""
        self.new_directory: bytes | None = None
        """Where replicas of new topics lie, as far as the controller knows; ``None``: it keeps no directories."""
        self._listeners: list[ImageListener] = []
        self._untold: deque[tuple[Sequence[ImageListener], ImageDelta]] = deque()
        self._next_producer_id = 1000

    def quorum(self) -> Quorum | None:
        return None

    @property
    def controller_image(self) -> FakeImage:
        return self.image

    @property
    def applied_offset(self) -> int:
        return -1

    async def start(self) -> None:
        return None

    async def caught_up(self) -> None:
        return None

    async def resign(self) -> None:
        return None

    async def stop(self) -> None:
        return None

    def subscribe(self, listener: ImageListener) -> None:
        self._listeners.append(listener)
        changed = tuple((t, p) for t in self.image.topics.values() for p in t.partitions.values())
        self._tell([listener], ImageDelta(first=True, partitions_changed=changed))

    def tell(self, delta: ImageDelta) -> None:
        self._tell(self._listeners, delta)

    def _tell(self, listeners: Sequence[ImageListener], delta: ImageDelta) -> None:
        """Tell listeners when the deltas before are applied."""
        self._untold.append((listeners, delta))
        if len(self._untold) == 1:
            self._tell_next()

    def _tell_next(self) -> None:
        while self._untold:
            listeners, delta = self._untold[0]
            applied = gather([one for listener in listeners if (one := listener(self.image, delta))])
            if not applied.done:
                applied.when_done(lambda _: self._told())
                return
            self._untold.popleft()

    def _told(self) -> None:
        self._untold.popleft()
        self._tell_next()

    def submit(self, command: Message, timeout_ms: float, **how: Any) -> Completion[Message]:
        self.commands.append(command)
        self.on_behalf.append(how.get("on_behalf"))
        self.waited_for_image.append(how.get("wait_image", True))
        answered: Completion[Message] = Completion()
        if self.held is not None:
            self.held.append(answered)
        elif self.refuse is not None:
            code, self.refuse = self.refuse, None
            answered.fail(BrokerError(code))
        else:
            try:
                answered.complete(self._decide(command))
            except BrokerError as error:
                answered.fail(error)
        return answered

    def sent(self, kind: type[M]) -> list[M]:
        """The commands of one kind that the broker has sent."""
        return [command for command in self.commands if isinstance(command, kind)]

    def _decide(self, command: Message) -> Message:
        answer = self.answers.get(type(command), lambda _: None)(command)
        return answer or self._usual_answer(command)

    def _usual_answer(self, command: Message) -> Message:
        match command:
            case BrokerRegistrationRequest():
                endpoints = tuple(Endpoint(e.name, e.host, e.port) for e in command.listeners)
                self.image.brokers[command.broker_id] = BrokerImage(
                    broker_id=command.broker_id,
                    epoch=7,
                    incarnation_id=command.incarnation_id,
                    endpoints=endpoints,
                    fenced=True,
                )
                return BrokerRegistrationResponse(broker_epoch=7)
            case BrokerHeartbeatRequest():
                self.set_fenced(command.broker_id, command.want_fence)
                return BrokerHeartbeatResponse(
                    is_caught_up=True, is_fenced=command.want_fence, should_shut_down=command.want_fence
                )
            case AllocateProducerIdsRequest():
                start, self._next_producer_id = self._next_producer_id, self._next_producer_id + 2
                return AllocateProducerIdsResponse(producer_id_start=start, producer_id_len=2)
            case CreateTopicsRequest():
                for topic in command.topics:
                    configs = {c.name: c.value or "" for c in topic.configs}
                    self.create_topic(topic.name, max(topic.num_partitions, 1), configs)
                return CreateTopicsResponse(
                    topics=[CreatableTopicResult(name=t.name) for t in command.topics]
                )
            case AssignReplicasToDirsRequest():
                return self._assign(command)
        raise AssertionError(f"nobody expected {command}")

    def set_fenced(self, broker_id: int, fenced: bool) -> None:
        broker = self.image.brokers[broker_id]
        if broker.fenced != fenced:
            self.image.brokers[broker_id] = msgspec.structs.replace(broker, fenced=fenced)
            self.tell(ImageDelta())

    def _assign(self, command: AssignReplicasToDirsRequest) -> AssignReplicasToDirsResponse:
        answer = AssignReplicasToDirsResponse()
        for directory in command.directories:
            topics = []
            for wanted in directory.topics:
                topic = self.image.topic_by_id(wanted.topic_id)
                partitions = []
                for one in wanted.partitions:
                    index = one.partition_index
                    code = ErrorCode.NONE if topic is not None else ErrorCode.UNKNOWN_TOPIC_ID
                    partitions.append(ResponsePartitionData(partition_index=index, error_code=code))
                    if topic is not None:
                        image = self.image.topics[topic.name].partitions[index]
                        image = msgspec.structs.replace(image, directories=(directory.id,))
                        self.change_partition(topic.name, image)
                topics.append(ResponseTopicData(topic_id=wanted.topic_id, partitions=partitions))
            answer.directories.append(ResponseDirectoryData(id=directory.id, topics=topics))
        return answer

    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> bytes:
        topic_id = name.encode().ljust(16, b"-")[:16]
        images = {
            index: PartitionImage(
                partition=index,
                replicas=(NODE,),
                isr=(NODE,),
                leader=NODE,
                leader_epoch=0,
                partition_epoch=0,
                directories=() if self.new_directory is None else (self.new_directory,),
            )
            for index in range(partitions)
        }
        topic = TopicImage(name=name, topic_id=topic_id, partitions=images)
        self.image.topics[name] = topic
        self.image.configs[TOPIC_RESOURCE, name] = dict(configs or {})
        changed = tuple((topic, image) for image in images.values())
        self.tell(ImageDelta(topics_created=(topic,), partitions_changed=changed))
        return topic_id

    def delete_topic(self, name: str) -> None:
        topic = self.image.topics.pop(name)
        self.tell(ImageDelta(topics_deleted=(topic,)))

    def change_partition(self, name: str, image: PartitionImage) -> None:
        topic = self.image.topics[name]
        topic = TopicImage(
            name=name, topic_id=topic.topic_id, partitions={**topic.partitions, image.partition: image}
        )
        self.image.topics[name] = topic
        self.tell(ImageDelta(partitions_changed=((topic, image),)))


@contextmanager
def refusal(code: ErrorCode) -> Iterator[None]:
    """What is done within must be refused with this code."""
    with pytest.raises(BrokerError) as caught:
        yield
    assert caught.value.code == code


def noting(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, note: Callable[..., T]) -> list[T]:
    """From now on each call of ``owner.name`` adds what ``note`` makes of the arguments to the list that is returned,
    and does its work."""
    notes: list[T] = []
    work = getattr(owner, name)

    def noted(*arguments: Any, **more: Any) -> Any:
        notes.append(note(*arguments))
        return work(*arguments, **more)

    monkeypatch.setattr(owner, name, noted)
    return notes


class Permissions:
    """``Authorizer`` that allows what ``allows`` says of (operation, resource type, name), by default nothing. It keeps
    what it was asked, and for which principal and address. Any topic has the resource type "any Topic"."""

    def __init__(self, allows: Callable[[str, str, str], bool] = lambda *_: False) -> None:
        self.generation = 0
        self.allows = allows
        self.asked: list[tuple[str, str, str]] = []
        self.asked_for: list[tuple[str, str]] = []

    def authorize_any(self, principal: object, host: str, operation: str, resource_type: str) -> bool:
        return self.authorize(principal, host, operation, f"any {resource_type}", "*")

    def authorize(
        self, principal: object, host: str, operation: str, kind: str, name: str, *, quiet: bool = False
    ) -> bool:
        self.asked.append((operation, kind, name))
        self.asked_for.append((str(principal), host))
        return self.allows(operation, kind, name)


class Succeeding:
    """``AppendWaiter`` of an append that must succeed."""

    commit_wait_ms = None

    def appended(self, code: ErrorCode) -> None:
        assert code == ErrorCode.NONE


class Announced:
    """Records what is announced."""

    def __init__(self) -> None:
        self.events: list[tuple[str, object]] = []

    def blumfeld_topic_created(self, topic: TopicImage) -> None:
        self.events.append(("created", topic.name))

    def blumfeld_topic_deleted(self, topic: TopicImage) -> None:
        self.events.append(("deleted", topic.name))

    def blumfeld_leader_changed(self, partition: object, image: PartitionImage) -> None:
        self.events.append(("leader", f"{partition} epoch {image.leader_epoch}"))


class Quiet:
    """An ``EventLog`` that remembers."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, dict[str, Any]]] = []

    def debug(self, event: str, **values: Any) -> None:
        self.events.append(("debug", event, values))

    def info(self, event: str, **values: Any) -> None:
        self.events.append(("info", event, values))

    def warning(self, event: str, **values: Any) -> None:
        self.events.append(("warning", event, values))

    def error(self, event: str, **values: Any) -> None:
        self.events.append(("error", event, values))


class FakeConnection:
    """``Connection``: remembers why it was closed."""

    layer: ByteLayer | None = None

    def __init__(self, listener: Listener = LISTENER) -> None:
        self.id = 1
        self.listener = listener
        self.peer_host = "127.0.0.1"
        self.peer_port = 40_000
        self.state: Any = None
        self.closed: str | None = None
        self.muted_until_ms = 0.0

    def limit_frames(self, bytes_max: int) -> None:
        self.frame_bytes_max = bytes_max

    def mute(self, until_ms: float) -> None:
        self.muted_until_ms = until_ms

    def close(self, reason: str) -> None:
        self.closed = reason

    def abort(self, reason: str) -> None:
        self.closed = reason


class FakeExchange:
    """``Exchange``: keeps the answer."""

    def __init__(self, connection: FakeConnection) -> None:
        self.connection = connection
        self.parts: Parts | None = None
        self.unanswered = False
        self.next_may_start = False

    def answer(self, parts: Parts) -> None:
        assert self.parts is None
        assert not self.unanswered
        self.parts = parts

    def no_answer(self) -> None:
        assert self.parts is None
        assert not self.unanswered
        self.unanswered = True

    def let_next_start(self) -> None:
        self.next_may_start = True

    @property
    def settled(self) -> bool:
        return self.unanswered or self.parts is not None

    def data(self) -> bytes:
        assert self.parts is not None, "there is no answer yet"
        data = join(self.parts)
        release(self.parts)
        self.parts = (data,)
        return data


class BrokerHarness:
    """A started broker and one connection to it. With ``partitions`` it has the topic ``t`` of so many."""

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        *,
        authorizer: Authorizer | None = None,
        quotas: ClientQuotas | None = None,
        group_protocols: Sequence[Any] = (),
        transactions: Any = None,
        make_transactions: Callable[[Any], Any] | None = None,
        storage: PlainStorage | None = None,
        make_storage: Callable[[FakeRuntime], LogStorage] | None = None,
        start: bool = True,
        metrics: Any = None,
        single_node: bool = True,
        roles: tuple[str, ...] = ("broker", "controller"),
        partitions: int = 0,
    ) -> None:
        self.runtime = FakeRuntime()
        self.metadata = FakeMetadata()
        self.hook = Announced()
        self.log = Quiet()
        self.composition = cast(
            "BrokerComposition",
            SimpleNamespace(
                runtime=self.runtime,
                config=BrokerConfig(dict(config or {})),
                node_id=NODE,
                roles=roles,
                cluster_id=self.metadata.image.cluster_id,
                incarnation_id=b"i" * 16,
                rack=None,
                single_node=single_node,
                features=(),
                observers=(),
                security=None,
                quotas=quotas,
                group_protocols=tuple(group_protocols),
                transactions=transactions,
                listeners=(LISTENER, CONTROLLER_LISTENER),
                metadata=self.metadata,
                hook=self.hook,
                plan_json=lambda: '{"format":1}',
                log=lambda name: self.log,
            ),
        )
        parts = cast("Any", self.composition)
        if make_transactions is not None:
            parts.transactions = make_transactions(self.composition)
        self.storage = PlainStorage() if storage is None else storage
        parts.storage = self.storage if make_storage is None else make_storage(self.runtime)
        parts.replication = IsrReplication(self.composition)
        self.broker = Broker(self.composition, authorizer, metrics)
        parts.membership = self.broker.membership
        self.connection = self.connect()
        self._correlation_id = 0
        self._gauges: dict[str, Callable[[], Any]] = {}
        if start:
            self.start()
        if partitions:
            self.create_topic("t", partitions)

    def start(self) -> None:
        async def start() -> None:
            await self.composition.storage.start(self.composition.cluster_id, NODE)
            await self.composition.replication.start()
            await self.broker.start()

        self.runtime.run(start())

    def stop(self) -> None:
        async def stop() -> None:
            await self.broker.stop()
            await self.composition.replication.stop()
            await self.composition.storage.stop(self.broker.membership.broker_epoch)

        self.runtime.run(stop())

    def connect(self, listener: Listener = LISTENER) -> FakeConnection:
        connection = FakeConnection(listener)
        self.broker.connection_handler(listener.kind).opened(cast("Any", connection))
        return connection

    def restarted(self, *, clean: bool = True) -> BrokerHarness:
        """Stop or, if that isn't ``clean``, kill the broker. Returns the next process on its storage and cluster."""
        if clean:
            self.stop()
        self.storage.watcher = None
        again = BrokerHarness(storage=self.storage, start=False)
        again.metadata.image = self.metadata.image
        again.start()
        return again

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> bytes:
        dotted = {key.replace("_", "."): value for key, value in configs.items()}
        topic_id = self.metadata.create_topic(name, partitions, dotted)
        self.runtime.run_turn()
        return topic_id

    def change_partition(self, topic: str = "t", index: int = 0, **changes: Any) -> None:
        """The image has :func:`partition_image` with these changes from now on."""
        self.metadata.change_partition(topic, partition_image(index, **changes))

    def log_of(self, topic: str, partition: int = 0) -> PlainLog:
        return self.storage.logs[TopicPartition(topic, partition)]

    def hosted(self, topic: str = "t", index: int = 0) -> Partition:
        """The partition, which must be hosted here."""
        partition = self.broker.partitions.find(topic, index)
        assert partition is not None
        return partition

    def leader(self, topic: str = "t", index: int = 0) -> LeaderReplica:
        """The leader's side of a partition, which must be led here."""
        leader = self.hosted(topic, index).leader
        assert leader is not None
        return leader

    def gauge(self, name: str) -> Any:
        """The value of ``blumfeld_NAME``. Some of them count from the first call on."""
        if not self._gauges:
            self._gauges = {metric.name: metric.read for metric in self.broker.gauges()}
        return self._gauges[f"blumfeld_{name}"]()

    def produce_batch(
        self,
        data: bytes | bytearray | None = None,
        *,
        version: int = 9,
        client_id: str = "test",
        **request: Any,
    ) -> PartitionProduceResponse:
        """Produce a batch, ``batch()`` if none is given; returns the partition's part of the answer."""
        answer = self.ask(produce(batch() if data is None else data, **request), version, client_id)
        return cast("PartitionProduceResponse", answer.responses[0].partition_responses[0])

    def produced(self, data: bytes | bytearray | None = None, **how: Any) -> ErrorCode:
        """As :meth:`produce_batch`; returns the error code."""
        return ErrorCode(self.produce_batch(data, **how).error_code)

    def frame(self, request: Message, version: int, client_id: str = "test") -> bytearray:
        self._correlation_id += 1
        key = request.meta.key
        assert key is not None
        header = put_request_header(key, version, self._correlation_id, client_id)
        return bytearray(header + encode(request, version))

    def send_frame(self, frame: bytearray, connection: FakeConnection | None = None) -> FakeExchange:
        """One request, and the end of its turn."""
        exchange = self.begin(frame, connection)
        self.runtime.run_turn()
        return exchange

    def begin(self, frame: bytearray, connection: FakeConnection | None = None) -> FakeExchange:
        """One request; the turn is left open."""
        exchange = FakeExchange(connection or self.connection)
        handler = self.broker.connection_handler(exchange.connection.listener.kind)
        handler.request(cast("Exchange", exchange), memoryview(frame))
        return exchange

    def send(
        self,
        request: Message,
        version: int,
        client_id: str = "test",
        connection: FakeConnection | None = None,
    ) -> FakeExchange:
        return self.send_frame(self.frame(request, version, client_id), connection)

    def ask(
        self,
        request: Message,
        version: int,
        client_id: str = "test",
        connection: FakeConnection | None = None,
    ) -> Any:
        """The response, which must come within the turn."""
        return self.response(self.send(request, version, client_id, connection), request, version)

    def response(self, exchange: FakeExchange, request: Message, version: int) -> Any:
        """The answer as a message; the correlation id must be the request's."""
        key = request.meta.key
        assert key is not None
        data = memoryview(exchange.data())
        _, position = response_body_offset(data, key, version)
        return decode(response_class(key), data, version, position)
