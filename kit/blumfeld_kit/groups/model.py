"""The models that the contract of group types runs on: a cluster, a request's context, a compacted log."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from blumfeld.coordinator.runtime.shard_contract import LogItem
from blumfeld.spi.cluster import BrokerImage, Endpoint, PartitionImage, TopicImage
from blumfeld.spi.context import ANONYMOUS, Principal
from blumfeld.spi.groups import CoordinatorRecord
from blumfeld.spi.transport import Listener

LISTENER = Listener(name="PLAINTEXT", kind="broker", host="127.0.0.1", port=9092)


class ModelCluster:
    """``ClusterImage`` with topics that can be created, enlarged and deleted. A topic id is never used twice."""

    def __init__(self, racks: Sequence[str] = ()) -> None:
        self.cluster_id = "AAAAAAAAAAAAAAAAAAAAAA"
        nodes = max(1, len(racks))
        self.brokers: dict[int, BrokerImage] = {
            n: BrokerImage(
                broker_id=n,
                epoch=1,
                incarnation_id=bytes(16),
                endpoints=(),
                rack=racks[n - 1] if racks else None,
            )
            for n in range(1, nodes + 1)
        }
        self.features: dict[str, int] = {"group.version": 1}
        self.features_epoch = 0
        self.topics: dict[str, TopicImage] = {}
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.changes = 0
        self._by_id: dict[bytes, str] = {}

    def create(self, name: str, count: int) -> None:
        """Create a topic, or add partitions to an existing one."""
        self.changes += 1
        self.features_epoch += 1
        known = self.topics.get(name)
        topic_id = known.topic_id if known else bytes([7]) * 8 + (1000 + self.changes).to_bytes(8)
        nodes = len(self.brokers)
        partitions = {n: _partition(n, 1 + n % nodes) for n in range(count)}
        self.topics[name] = TopicImage(name=name, topic_id=topic_id, partitions=partitions)
        self._by_id[topic_id] = name

    def delete(self, name: str) -> None:
        """Delete a topic."""
        self.changes += 1
        self.features_epoch += 1
        del self._by_id[self.topics.pop(name).topic_id]

    def topic_by_id(self, topic_id: bytes) -> TopicImage | None:
        """Return the topic with this id."""
        name = self._by_id.get(topic_id)
        return None if name is None else self.topics[name]

    def config(self, resource_type: int, name: str) -> Mapping[str, str]:
        """Return the dynamic configuration of a resource."""
        return self.configs.get((resource_type, name), {})

    def controller_endpoints(self, listener: str) -> list[tuple[int, Endpoint]]:
        """Return none: the model has no controllers."""
        return []

    def configured(self, resource_type: int) -> tuple[str, ...]:
        """Return the names of resources with a dynamic configuration."""
        return tuple(sorted(name for kind, name in self.configs if kind == resource_type))

    def section(self, name: str) -> Any:
        """Return a plug-in's section: there is none."""
        raise KeyError(name)


def _partition(index: int, leader: int) -> PartitionImage:
    return PartitionImage(
        partition=index,
        replicas=(leader,),
        isr=(leader,),
        leader=leader,
        leader_epoch=0,
        partition_epoch=0,
    )


class ModelContext:
    """``RequestContext`` of one request. The client may do everything."""

    def __init__(self, api_key: int, api_version: int, client_id: str = "client") -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.client_id = client_id
        self.peer_host = "10.0.0.1"
        self.correlation_id = 0
        self.listener = LISTENER
        self.peer_port = 40_000
        self.connection_id = 1
        self.received_ms = 0.0
        self.is_large = False

    @property
    def rights_generation(self) -> int:
        """Rights never change."""
        return 0

    @property
    def principal(self) -> Principal:
        """The anonymous principal."""
        return ANONYMOUS

    def set_principal(self, principal: Principal) -> None:
        """Fail: no request of a group authenticates."""
        raise AssertionError(f"set_principal({principal}) of a group's request")

    def authorize_any(self, operation: str, resource_type: str) -> bool:
        """As ``RequestContext.authorize_any``."""
        return self.authorize(operation, resource_type, "*")

    def authorize(self, operation: str, resource_type: str, name: str, *, quiet: bool = False) -> bool:
        """Everything is allowed."""
        return True

    def close_connection(self, reason: str) -> None:
        """Fail: no request of a group may close its connection."""
        raise AssertionError(reason)

    def when_gone(self, callback: Callable[[], None] | None) -> None:
        """Fail: nothing of a group depends on the life of a connection."""
        raise AssertionError("when_gone of a group's request")

    def let_next_start(self) -> None:
        """Fail: only Produce may call this."""
        raise AssertionError("let_next_start of a group's request")

    def throttle(self, duration_ms: float) -> None:
        """Fail: no request of a group is throttled."""
        raise AssertionError("a group's request was throttled")


def compacted(items: Sequence[LogItem]) -> list[LogItem]:
    """Return the records that full compaction leaves: the last of each key, without tombstones."""
    last: dict[bytes, int] = {}
    for n, item in enumerate(items):
        if isinstance(item, CoordinatorRecord):
            last[item.key] = n
    return [
        item
        for n, item in enumerate(items)
        if not isinstance(item, CoordinatorRecord) or (last[item.key] == n and item.value is not None)
    ]
