"""What surrounds a coordinator in its tests: a log whose commits a test decides, a cluster image, a client."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from blumfeld.coordinator.runtime.shard_contract import LogItem, TransactionalRecord, TransactionMarker
from blumfeld.spi.cluster import BrokerImage, Endpoint, PartitionImage, TopicImage
from blumfeld.spi.completion import Completion
from blumfeld.spi.groups import CoordinatorRecord, Producer
from blumfeld.spi.transport import Listener
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld_kit.groups.model import ModelContext

LISTENER = Listener(name="PLAINTEXT", kind="broker", host="127.0.0.1", port=9092)


class FakeLog:
    """``CoordinatorLog``: a list. With ``hold`` the test says when what was appended is committed."""

    def __init__(self, items: Sequence[LogItem] = (), *, hold: bool = False) -> None:
        self.epoch = 1
        self.items: list[Any] = list(items)
        """``LogItem``s; where no transactions are, plain records."""
        self.batches: list[list[CoordinatorRecord]] = []
        self.hold = hold
        self.refuse: ErrorCode | None = None
        """The next append places nothing."""
        self.record_bytes_max = 1 << 20
        """A record with a larger value is MESSAGE_TOO_LARGE."""
        self.broken: Exception | None = None
        """Reading raises it."""
        self.open: list[Completion[None]] = []
        self.ahead: Completion[None] = Completion.of(None)
        """What ``committed`` gives."""
        self.unwritten: Completion[None] = Completion.of(None)
        """What ``written`` gives."""

    def append(
        self, records: Sequence[CoordinatorRecord], producer: Producer | None = None
    ) -> Completion[None]:
        if self.refuse is not None:
            code, self.refuse = self.refuse, None
            raise BrokerError(code)
        if any(len(item.value or b"") > self.record_bytes_max for item in records):
            raise BrokerError(ErrorCode.MESSAGE_TOO_LARGE)
        self.items.extend(
            records if producer is None else [TransactionalRecord(producer, item) for item in records]
        )
        self.batches.append(list(records))
        committed: Completion[None] = Completion()
        if self.hold:
            self.open.append(committed)
        else:
            committed.complete(None)
        return committed

    def check_producer(self, producer: Producer) -> None:
        writers = [item.producer for item in self.items if isinstance(item, TransactionalRecord)]
        epochs = [writer.producer_epoch for writer in writers if writer.producer_id == producer.producer_id]
        if producer.producer_epoch < max(epochs, default=0):
            raise BrokerError(ErrorCode.INVALID_PRODUCER_EPOCH)

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """Place a marker, as WriteTxnMarkers does; the host is to be told by ``transaction_ended``."""
        self.items.append(TransactionMarker(producer_id, committed))

    def written(self) -> Completion[None]:
        return self.unwritten

    def records(self) -> Iterator[LogItem]:
        if self.broken is not None:
            raise self.broken
        yield from list(self.items)

    def committed(self) -> Completion[None]:
        return self.ahead

    def commit(self, batches: int | None = None) -> None:
        """The high watermark passes the oldest ``batches``, or all."""
        now, self.open = self.open[:batches], self.open[len(self.open[:batches]) :]
        for committed in now:
            committed.complete(None)

    def fail(self, code: ErrorCode) -> None:
        """What is not committed yet never will be."""
        now, self.open = self.open, []
        for committed in now:
            committed.fail(BrokerError(code))


class FakeImage:
    """``ClusterImage`` with topics of one replica; an id is its name's bytes, padded."""

    def __init__(self, topics: Mapping[str, int] | None = None) -> None:
        self.cluster_id = "AAAAAAAAAAAAAAAAAAAAAA"
        self.brokers: dict[int, BrokerImage] = {}
        self.features: dict[str, int] = {"group.version": 1}
        self.features_epoch = -1
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.topics = {name: topic(name, count) for name, count in (topics or {}).items()}

    def topic_by_id(self, topic_id: bytes) -> TopicImage | None:
        return next((t for t in self.topics.values() if t.topic_id == topic_id), None)

    def config(self, resource_type: int, name: str) -> Mapping[str, str]:
        return self.configs.get((resource_type, name), {})

    def controller_endpoints(self, listener: str) -> list[tuple[int, Endpoint]]:
        return []

    def configured(self, resource_type: int) -> tuple[str, ...]:
        return ()

    def section(self, name: str) -> Any:
        raise KeyError(name)


def topic_id(name: str) -> bytes:
    """The id that :class:`FakeImage` gives a topic."""
    return name.encode().ljust(16, b".")


def topic(name: str, count: int) -> TopicImage:
    """A topic of ``count`` partitions, led by node 1."""
    partitions = {
        n: PartitionImage(partition=n, replicas=(1,), isr=(1,), leader=1, leader_epoch=0, partition_epoch=0)
        for n in range(count)
    }
    return TopicImage(name=name, topic_id=topic_id(name), partitions=partitions)


class FakeContext(ModelContext):
    """``RequestContext`` of one request of an API version; ``denied`` is what may not be done."""

    def __init__(
        self,
        api_key: int,
        api_version: int,
        *,
        client_id: str = "client",
        peer_host: str = "10.0.0.1",
        denied: Callable[[str, str, str], bool] = lambda *_: False,
    ) -> None:
        super().__init__(api_key, api_version, client_id)
        self.peer_host = peer_host
        self._denied = denied

    def authorize_any(self, operation: str, resource_type: str) -> bool:
        return self.authorize(operation, resource_type, "*")

    def authorize(self, operation: str, resource_type: str, name: str, *, quiet: bool = False) -> bool:
        return not self._denied(operation, resource_type, name)


class Events:
    """``EventLog`` that keeps what was said."""

    def __init__(self) -> None:
        self.said: list[tuple[str, str, dict[str, Any]]] = []

    @property
    def told(self) -> list[tuple[str, str]]:
        """Level and event, without the values."""
        return [(level, event) for level, event, _ in self.said]

    def debug(self, event: str, **values: Any) -> None:
        self.said.append(("debug", event, values))

    def info(self, event: str, **values: Any) -> None:
        self.said.append(("info", event, values))

    def warning(self, event: str, **values: Any) -> None:
        self.said.append(("warning", event, values))

    def error(self, event: str, **values: Any) -> None:
        self.said.append(("error", event, values))


def code_of(completion: Completion[Any]) -> ErrorCode | None:
    """The code that a request failed with; ``None`` if it has not failed."""
    error = completion.error
    assert error is None or isinstance(error, BrokerError)
    return None if error is None else error.code
