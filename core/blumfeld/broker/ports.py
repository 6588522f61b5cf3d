""":class:`Ports`, the set of parts that a handler is handed, and what coordinators are to it.

No room imports ``broker.py``. It makes the parts, and hands each part the ports that it needs. So a handler can be
tested, and read, without a broker around it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from blumfeld.broker.cluster import ClusterView
    from blumfeld.broker.fetch_sessions import FetchSessions
    from blumfeld.broker.membership.lost_brokers import LostBrokers
    from blumfeld.broker.replicas.hosting.partition_manager import PartitionManager
    from blumfeld.broker.replicas.rules.record_inspection import RecordInspection
    from blumfeld.broker.waiting.parking import PurgatoryParking
    from blumfeld.client.envelope import Forwarded
    from blumfeld.spi.cluster import Membership
    from blumfeld.spi.completion import Completion
    from blumfeld.spi.consensus import ClusterMetadata, Quorum
    from blumfeld.spi.context import RequestContext
    from blumfeld.spi.hooks import EventLog, Feature
    from blumfeld.spi.quotas import ClientQuotas
    from blumfeld.spi.runtime import Runtime
    from blumfeld.spi.storage import LogStorage
    from blumfeld.spi.transactions import TransactionCoordinator
    from blumfeld.wire.errors import ErrorCode


class TransactionsEnded(Protocol):
    """A coordinator whose state transactions may change: the groups, with offsets committed in transactions."""

    def transaction_ended(self, index: int, producer_id: int, committed: bool) -> None:
        """A marker was placed in this partition of the coordinator's topic. Call it in the same turn."""
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
    hosted: PartitionManager
    controller: ClusterMetadata
    parking: PurgatoryParking
    membership: Membership
    quotas: ClientQuotas | None
    """How many partitions a client may create and delete; ``None`` in a build without quotas."""
    storage: LogStorage
    fetch_sessions: FetchSessions
    record_inspection: RecordInspection
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
    lost: LostBrokers
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
    plan_json: Callable[[], str]
    """As of :class:`BrokerComposition`."""
