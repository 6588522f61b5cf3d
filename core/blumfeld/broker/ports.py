"""The small Protocols by which the broker's rooms use each other, and :class:`Ports`, the set that a handler is handed.

No room imports ``broker.py``. It makes the parts, and hands each part the ports that it needs. So a handler can be
tested, and read, without a broker around it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from blumfeld.broker.cluster import ClusterView
    from blumfeld.broker.fetch_sessions import FetchSessions
    from blumfeld.broker.replicas.partition import Partition
    from blumfeld.broker.replicas.rules.looking_inside import LookingInside
    from blumfeld.broker.replicas.watching.topic_bytes import TopicBytes
    from blumfeld.broker.waiting.parking import Expires
    from blumfeld.client.envelope import Forwarded
    from blumfeld.spi.cluster import BrokerImage, Membership
    from blumfeld.spi.completion import Completion
    from blumfeld.spi.consensus import Controller, OnBehalf, Quorum
    from blumfeld.spi.context import ParkedOperation, RequestContext
    from blumfeld.spi.hooks import EventLog, Feature
    from blumfeld.spi.runtime import Runtime
    from blumfeld.spi.storage import LogStorage, TopicPartition
    from blumfeld.spi.transactions import TransactionCoordinator
    from blumfeld.wire.errors import ErrorCode
    from blumfeld.wire.schema import Message


class Hosted(Protocol):
    """The partitions that this node hosts."""

    generation: int
    """Goes up whenever a partition comes, goes, fails or changes its leader: earlier look-ups are stale."""
    topic_bytes: dict[str, TopicBytes]
    """Bytes in and out by topic with a hosted partition; empty in a node without a metrics endpoint."""

    def __iter__(self) -> Iterator[Partition]:
        """All of them, in the order in which they were opened."""
        ...

    def find(self, topic: str, index: int) -> Partition | None:
        """A hosted partition by its topic's name."""
        ...

    def find_by_id(self, topic_id: bytes, index: int) -> Partition | None:
        """A hosted partition by its topic's id."""
        ...

    def leading(self, topic: str, index: int) -> Partition:
        """A partition that this node leads.

        :raises BrokerError: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR
        """
        ...

    def is_offline(self, topic: str, index: int) -> bool:
        """Whether this node has the replica but could not open it: KAFKA_STORAGE_ERROR."""
        ...

    def settled(self) -> Completion[None]:
        """Completes once all logs that the image wants are open."""
        ...

    def prefer(self, partition: TopicPartition, directory_id: bytes) -> None:
        """Place a replica that comes later in this log directory."""
        ...


class Submit(Protocol):
    """The way to the controller."""

    @property
    def controller(self) -> Controller | None:
        """The controller, as far as this node knows."""
        ...

    def submit(
        self,
        command: Message,
        timeout_ms: float,
        *,
        on_behalf: OnBehalf | None = None,
        wait_image: bool = True,
    ) -> Completion[Message]:
        """As ``ClusterMetadata.submit``."""
        ...


class Park(Protocol):
    """The purgatory, as rooms of the broker use it."""

    def park(self, operation: ParkedOperation, keys: Sequence[Hashable], timeout_ms: float) -> None:
        """As ``spi.context.Parking.park``."""
        ...

    def wake(self, key: Hashable) -> None:
        """Try the operations that watch ``key`` again, in this turn."""
        ...

    def until(self, request: Expires, wait_ms: float, now_ms: float) -> None:
        """Let a request wait that is woken by other means: expire it in ``wait_ms``, unless :meth:`completed` or
        :meth:`forget` is called before. After the broker has stopped it expires at once."""
        ...

    def completed(self, request: Expires, wait_ms: float) -> None:
        """End a wait, and count the request as answered. ``wait_ms`` is that of :meth:`until`."""
        ...

    def forget(self, request: Expires, wait_ms: float) -> None:
        """End a wait whose answer nothing waits for any more."""
        ...


class TransactionsEnded(Protocol):
    """A coordinator whose state transactions may change: the groups, with offsets committed in transactions."""

    def transaction_ended(self, index: int, producer_id: int, committed: bool) -> None:
        """A marker was placed in this partition of the coordinator's topic. Call it in the same turn."""
        ...


class Lost(Protocol):
    """Brokers whose process is gone: before the image shows it, and shortly after."""

    def settled(self, brokers: Iterable[int]) -> Completion[None] | None:
        """Returns a completion for the time when none of these brokers is waited for; ``None`` if none is now."""
        ...

    def refuses(self, broker_id: int) -> bool:
        """Whether the broker's port refused a connection, and the image doesn't show it fenced yet."""
        ...

    def just_fenced(self) -> Iterable[BrokerImage]:
        """Returns the brokers that were fenced a moment ago."""
        ...


class CoordinatorKind(NamedTuple):
    """A coordinator of this build, for FindCoordinator: a key belongs to the leader of one partition of ``topic``."""

    key_type: int
    """Key type of FindCoordinator: 0 group, 1 transactional id, 2 share group's partition."""
    topic: str
    resource_type: str
    """A client needs the permission to describe a resource of this type, named by the key."""
    refusal: ErrorCode
    """The error without that permission."""


class Ports(NamedTuple):
    """The ports that every handler is handed."""

    runtime: Runtime
    events: EventLog
    cluster: ClusterView
    hosted: Hosted
    controller: Submit
    parking: Park
    membership: Membership
    storage: LogStorage
    fetch_sessions: FetchSessions
    looking_inside: LookingInside
    groups: Callable[[], TransactionsEnded | None]
    """Returns the coordinator of groups; ``None`` in a composition without a group protocol."""
    transactions: Callable[[], TransactionCoordinator | None]
    """Returns the coordinator of transactions; ``None`` in a composition without a transactions plug-in."""
    producer_ids: Callable[[], Completion[int]]
    """Returns a producer id that nobody has (:class:`ProducerIds
    <blumfeld.broker.coordination.producer_ids.ProducerIds>`)."""
    coordinators: Callable[[], Mapping[int, CoordinatorKind]]
    """Returns key type → coordinator, of those that this composition has."""
    serve_inner: Callable[[Forwarded, RequestContext], Completion[bytes]]
    """As :meth:`InnerRequests.serve <blumfeld.broker.serving.inner.InnerRequests.serve>`."""
    lost: Lost
    single_node: bool
    """As of :class:`BrokerComposition`."""
    quorum: Callable[[], Quorum | None]
    """As ``ClusterMetadata.quorum``."""
    features: tuple[Feature, ...]
    """Feature levels that plug-ins bring, beside the broker's own."""
    count_error: Callable[[int, int], None]
    """Counts an error of an answer: API key, error code."""
    advertised: Callable[[str], dict[int, tuple[int, int]]]
    """Listener kind → API key → (lowest, highest) version, as ApiVersions says."""
