"""Forms of the nodes that describe the whole cluster: brokers, controller, features, producer ids. Pure.

Each form is read from what Kafka up to 3.9 has written, and written byte for byte as Kafka 3.9.2 does. Fields that no
Kafka of ZooKeeper's time has are ignored, and lost when the node is written again: Kafka does both. The modules beside
this one have the other nodes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from blumfeld.metadata.image.security_protocols import NAMES, protocol_number
from blumfeld.spi.cluster import Endpoint
from blumfeld.wire.messages.metadata_records import BrokerEndpoint, BrokerFeature, RegisterBrokerRecord

T = TypeVar("T")
SHOWN_BYTES_MAX = 200
MIGRATES = "zookeeper.metadata.migration"
"""The feature in a broker's znode that says that it obeys a controller of KRaft, and asks it."""
_ENDPOINT = re.compile(r"(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]+)")


class TreeError(ValueError):
    """A node of the tree holds what no Kafka of ZooKeeper's time writes there, or what this build refuses."""

    def __init__(self, path: str, found: bytes | str, allowed: str) -> None:
        """:param allowed: what the node may hold, and what to do about it"""
        shown = found[:SHOWN_BYTES_MAX]
        super().__init__(f"{path} holds {shown!r}; allowed: {allowed}")
        self.path = path
        self.allowed = allowed


class NoFormError(ValueError):
    """A tree of Kafka 3.9 has no place or no form for this."""


def reader(form: type[T], allowed: str) -> Callable[[str, bytes], T]:
    """A function that reads a node of this form.

    :param allowed: what a :class:`TreeError` says of the form
    """
    decode = msgspec.json.Decoder(form).decode

    def read(path: str, data: bytes) -> T:
        try:
            return decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise TreeError(path, data, f"{allowed} ({error})") from None

    return read


written = msgspec.json.Encoder().encode
"""Writes a form as compact JSON, its fields in their order, as Kafka does."""


def whole_number(path: str, data: bytes | str) -> int:
    """Read a number that is written as text."""
    text = data if isinstance(data, str) else data.decode(errors="replace")
    try:
        return msgspec.convert(text, int, strict=False)
    except msgspec.ValidationError:
        raise TreeError(path, data, "a whole number") from None


class _BrokerForm(msgspec.Struct, frozen=True, kw_only=True):
    features: dict[str, dict[str, int]] | UnsetType = UNSET
    listener_security_protocol_map: dict[str, str] | UnsetType = UNSET
    endpoints: list[str] | UnsetType = UNSET
    rack: str | UnsetType | None = UNSET
    jmx_port: int
    port: int | UnsetType = UNSET
    host: str | UnsetType | None = UNSET
    version: int
    timestamp: str = "0"


_read_broker = reader(_BrokerForm, "a broker's registration in version 1 to 5")


class BrokerNode(msgspec.Struct, frozen=True, kw_only=True):
    """``/brokers/ids/N``: a broker that is alive."""

    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    features: Mapping[str, tuple[int, int]] = {}
    """Name → lowest and highest level that the broker supports."""
    jmx_port: int = -1
    timestamp_ms: int = 0


def decode_broker(path: str, data: bytes) -> BrokerNode:
    """Read a registration of version 1 to 5.

    :raises TreeError: it can't be read
    """
    form = _read_broker(path, data)
    if not 1 <= form.version <= 5:
        raise TreeError(path, data, "a broker's registration in version 1 to 5")
    if form.version == 1:
        endpoints = [_plaintext(path, data, form)]
    else:
        endpoints = [_endpoint(path, data, text, form) for text in form.endpoints or ()]
    features = form.features or {}
    return BrokerNode(
        endpoints=tuple(endpoints),
        rack=form.rack or None,
        features={
            name: (at.get("min_version", 0), at.get("max_version", 0)) for name, at in features.items()
        },
        jmx_port=form.jmx_port,
        timestamp_ms=whole_number(path, form.timestamp),
    )


def _plaintext(path: str, data: bytes, form: _BrokerForm) -> Endpoint:
    if not form.host or form.port is UNSET:
        raise TreeError(path, data, "a broker's registration in version 1, which has host and port")
    return Endpoint("PLAINTEXT", form.host, form.port)


def _endpoint(path: str, data: bytes, text: str, form: _BrokerForm) -> Endpoint:
    """Before version 4 a listener has the name of its security protocol."""
    parts = _ENDPOINT.fullmatch(text)
    if parts is None:
        raise TreeError(path, data, f"endpoints as LISTENER://HOST:PORT, not {text!r}")
    listener, host, port = parts[1], parts[2], int(parts[3])
    protocol = (form.listener_security_protocol_map or {}).get(listener, listener)
    if protocol not in NAMES:
        raise TreeError(path, data, f"a security protocol among {', '.join(NAMES)}, not {protocol!r}")
    return Endpoint(listener, host, port, protocol)


def encode_broker(node: BrokerNode) -> bytes:
    """Write a registration of version 5. ``host`` and ``port`` are those of the first PLAINTEXT listener, for clients
    that know no other."""
    plain = next((at for at in node.endpoints if at.security_protocol == "PLAINTEXT"), None)
    form = _BrokerForm(
        features={
            name: {"min_version": low, "max_version": high} for name, (low, high) in node.features.items()
        },
        listener_security_protocol_map={at.listener: at.security_protocol for at in node.endpoints},
        endpoints=[
            f"{at.listener}://{f'[{at.host}]' if ':' in at.host else at.host}:{at.port}"
            for at in node.endpoints
        ],
        rack=UNSET if node.rack is None else node.rack,
        jmx_port=node.jmx_port,
        port=-1 if plain is None else plain.port,
        host=None if plain is None else plain.host,
        version=5,
        timestamp=str(node.timestamp_ms),
    )
    return written(form)


def broker_record(broker_id: int, node: BrokerNode, broker_epoch: int) -> RegisterBrokerRecord:
    """The registration as the image has it: alive, so not fenced.

    A tree knows no incarnation: the id is made of the epoch.

    :param broker_epoch: the node's ``czxid``
    """
    return RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=broker_epoch.to_bytes(16),
        broker_epoch=broker_epoch,
        end_points=[
            BrokerEndpoint(
                name=at.listener,
                host=at.host,
                port=at.port,
                security_protocol=protocol_number(at.security_protocol),
            )
            for at in node.endpoints
        ],
        features=[
            BrokerFeature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in node.features.items()
        ],
        rack=node.rack,
        fenced=False,
    )


class _EndpointForm(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    host: str
    port: int
    security_protocol: str


class _ControllerForm(msgspec.Struct, frozen=True, kw_only=True):
    version: int = 2
    brokerid: int
    timestamp: str = "0"
    kraftControllerEpoch: int = -1  # noqa: N815 - Kafka's name
    endpoint: _EndpointForm | UnsetType = UNSET


_read_controller = reader(_ControllerForm, "the controller's broker id, in version 1 or 2")


class ControllerNode(msgspec.Struct, frozen=True):
    """``/controller``: the broker that is the controller."""

    broker_id: int
    timestamp_ms: int = 0
    kraft_controller_epoch: int = -1
    """0 or more: a KRaft controller has taken the cluster over (KIP-866)."""
    endpoint: Endpoint | None = None
    """Where a KRaft controller of this build is reached. Kafka's writes none, and its brokers ignore it."""


def decode_controller(path: str, data: bytes) -> ControllerNode:
    """Read version 1, or version 2 with ``kraftControllerEpoch``.

    :raises TreeError: it can't be read
    """
    form = _read_controller(path, data)
    at, endpoint = form.endpoint, None
    if not isinstance(at, UnsetType):
        endpoint = Endpoint(at.name, at.host, at.port, at.security_protocol)
    timestamp_ms = whole_number(path, form.timestamp)
    return ControllerNode(form.brokerid, timestamp_ms, form.kraftControllerEpoch, endpoint)


def encode_controller(node: ControllerNode) -> bytes:
    """Write version 2."""
    at = node.endpoint
    return written(
        _ControllerForm(
            brokerid=node.broker_id,
            timestamp=str(node.timestamp_ms),
            kraftControllerEpoch=node.kraft_controller_epoch,
            endpoint=UNSET
            if at is None
            else _EndpointForm(
                name=at.listener, host=at.host, port=at.port, security_protocol=at.security_protocol
            ),
        )
    )


def decode_epoch(path: str, data: bytes) -> int:
    """Read ``/controller_epoch``.

    :raises TreeError: it is no number
    """
    return whole_number(path, data)


def encode_epoch(epoch: int) -> bytes:
    """Write ``/controller_epoch``."""
    return b"%d" % epoch


class _ClusterIdForm(msgspec.Struct, frozen=True, kw_only=True):
    version: str | int = "1"
    id: str


_read_cluster_id = reader(_ClusterIdForm, "the cluster's id")


def decode_cluster_id(path: str, data: bytes) -> str:
    """Read ``/cluster/id``.

    :raises TreeError: it can't be read
    """
    return _read_cluster_id(path, data).id


def encode_cluster_id(cluster_id: str) -> bytes:
    """Write ``/cluster/id``."""
    return written(_ClusterIdForm(id=cluster_id))


class _FeatureForm(msgspec.Struct, frozen=True, kw_only=True):
    features: dict[str, dict[str, int]]
    version: int
    status: int


_read_feature = reader(_FeatureForm, "the finalized features in version 1 or 2, with status 0 or 1")


class FeatureNode(msgspec.Struct, frozen=True):
    """``/feature``: the finalized feature levels. Before ZooKeeper mode ended there were none to finalize."""

    levels: Mapping[str, int] = {}
    enabled: bool = True
    """Status 1. With status 0 the levels don't count: the brokers are older than Kafka 2.7."""


def decode_feature(path: str, data: bytes) -> FeatureNode:
    """Read version 1 or 2.

    :raises TreeError: it can't be read
    """
    form = _read_feature(path, data)
    levels = {name: level.get("max_version_level", -1) for name, level in form.features.items()}
    if form.version < 1 or form.status not in (0, 1) or min(levels.values(), default=0) < 0:
        raise TreeError(path, data, "the finalized features in version 1 or 2, with status 0 or 1")
    return FeatureNode(levels, form.status == 1)


def encode_feature(node: FeatureNode) -> bytes:
    """Write version 2."""
    levels = {name: {"max_version_level": level} for name, level in node.levels.items()}
    return written(_FeatureForm(features=levels, version=2, status=int(node.enabled)))


class _ProducerIdsForm(msgspec.Struct, frozen=True, kw_only=True):
    version: int = 1
    broker: int
    block_start: str
    block_end: str


_read_producer_ids = reader(_ProducerIdsForm, "a block of producer ids in version 1, or nothing")


class ProducerIdsNode(msgspec.Struct, frozen=True):
    """``/latest_producer_id_block``: the block of producer ids that was allocated last."""

    broker_id: int
    start: int
    end: int
    """The last id of the block."""


def decode_producer_ids(path: str, data: bytes) -> ProducerIdsNode | None:
    """Read the block; ``None`` where none was allocated yet.

    :raises TreeError: it can't be read
    """
    if not data:
        return None
    form = _read_producer_ids(path, data)
    return ProducerIdsNode(
        form.broker, whole_number(path, form.block_start), whole_number(path, form.block_end)
    )


def encode_producer_ids(node: ProducerIdsNode) -> bytes:
    """Write the block."""
    return written(
        _ProducerIdsForm(broker=node.broker_id, block_start=str(node.start), block_end=str(node.end))
    )


class MigrationNode(msgspec.Struct, frozen=True, kw_only=True):
    """``/migration``: how far a migration to KRaft has come (KIP-866)."""

    version: int = 0
    kraft_metadata_offset: int = -1
    kraft_controller_id: int = -1
    kraft_metadata_epoch: int = -1
    kraft_controller_epoch: int = -1


decode_migration = reader(MigrationNode, "the state of a migration to KRaft")
"""Reads ``/migration``; raises :class:`TreeError`."""


def encode_migration(node: MigrationNode) -> bytes:
    """Write ``/migration``."""
    return written(node)
