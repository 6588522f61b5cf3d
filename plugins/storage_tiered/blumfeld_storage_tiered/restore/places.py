"""The nodes that manifests name: their ids, roles and directories. Opens nothing but the manifests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from blumfeld.config.definitions import ConfigError
from blumfeld.config.quorum import VOTERS, quorum_voters
from blumfeld.config.values import BrokerConfig, TopicConfig
from blumfeld.plugging.errors import ManifestError, Problem
from blumfeld.plugging.sections import node_directory, parse_manifest, read_section

MIN_ISR = "min.insync.replicas"


class NodePlace(msgspec.Struct, frozen=True, kw_only=True):
    """A node and its place on a machine."""

    manifest: str
    """Path of the file that names it."""
    node_id: int
    is_broker: bool
    directories: tuple[str, ...]
    min_insync_replicas: int
    retention_ms: int = -1
    """``log.retention.ms``, or what stands for it."""


class _NodeSection(msgspec.Struct, frozen=True):
    """The keys of ``[node]`` that a restore needs. ``blumfeld format`` has checked the others."""

    id: int = 1
    roles: tuple[str, ...] = ("broker", "controller")
    data_dir: str = "data"
    data_dirs: tuple[str, ...] = ()


def places_of(manifests: Mapping[str, str]) -> list[NodePlace]:
    """Return the nodes of a cluster.

    :param manifests: path → text
    :raises ManifestError: a manifest can't be read, two name the same node, or one of the voters has none
    """
    places: list[NodePlace] = []
    for path, text in manifests.items():
        places += _places(path, text)
    ids = [place.node_id for place in places]
    for place in places:
        if ids.count(place.node_id) > 1:
            raise ManifestError(place.manifest, [Problem("node.id", str(place.node_id), "an id of its own")])
    if not any(place.is_broker for place in places):
        raise ManifestError(
            next(iter(manifests)), [Problem("node.roles", "no broker", "the manifest of one, too")]
        )
    for path, text in manifests.items():
        check_voters(path, _voters(path, text), ids)
    return places


def check_voters(source: str, voters: Sequence[int], ids: Sequence[int]) -> None:
    """Check that each voter is restored: one that began with nothing could be elected, and the others would follow.

    :raises ManifestError: one isn't
    """
    missing = sorted(set(voters) - set(ids))
    if missing:
        numbers = ", ".join(map(str, missing))
        allowed = "the manifests of all voters of the quorum, in one command"
        raise ManifestError(
            source, [Problem(f'config."{VOTERS}"', f"no manifest of node {numbers}", allowed)]
        )


def _places(path: str, text: str) -> list[NodePlace]:
    node = read_section(text, "node", _NodeSection, path, {})
    raw = parse_manifest(text, path)
    count, config = raw.get("nodes", 1), raw.get("config", {})
    if not isinstance(count, int) or count < 1:
        raise ManifestError(path, [Problem("nodes", repr(count), "a number from 1 on")])
    directories = node.data_dirs or (node.data_dir,)
    try:
        broker = BrokerConfig(config)
    except ConfigError as error:
        raise ManifestError(
            path, [Problem(f'config."{error.key}"', str(error.found), error.allowed)]
        ) from None
    ids = range(node.id, node.id + count)
    return [
        NodePlace(
            manifest=path,
            node_id=node_id,
            is_broker="broker" in node.roles,
            directories=directories if count == 1 else tuple(node_directory(d, node_id) for d in directories),
            min_insync_replicas=broker.int(MIN_ISR),
            retention_ms=TopicConfig({}, broker).retention_ms,
        )
        for node_id in ids
    ]


def _voters(path: str, text: str) -> list[int]:
    value: Any = parse_manifest(text, path).get("config", {}).get(VOTERS, ())
    entries = value.split(",") if isinstance(value, str) else list(value)
    try:
        return [
            voter.voter_id for voter in quorum_voters([entry.strip() for entry in entries if entry.strip()])
        ]
    except ConfigError as error:
        raise ManifestError(path, [Problem(f'config."{VOTERS}"', str(error.found), error.allowed)]) from None
