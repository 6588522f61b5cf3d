"""The file list is the support matrix: table, modules, Kafka's versions and docs/not-implemented.md say the same."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from blumfeld.broker.handlers import TABLE, Row, own_handlers
from blumfeld.broker.handlers.groups import group_types
from blumfeld.spi.groups import GroupProtocol
from blumfeld.wire.api import API_BY_KEY
from blumfeld_consensus_kraft.quorum.handlers import quorum_handlers
from blumfeld_groups_classic import ClassicGroupProtocol
from blumfeld_groups_kip848.protocol import ConsumerGroupProtocol
from tests.everyday import for_each

ROOT = Path(__file__).resolve().parents[3]
HANDLERS = ROOT / "core" / "blumfeld" / "broker" / "handlers"


class AnyBroker:
    """Stands for a broker where only what a handler registers is asked."""

    def __getattr__(self, name: str) -> Any:
        return AnyBroker()

    def __call__(self, *_: object, **__: object) -> Any:
        return AnyBroker()


def advertised() -> dict[int, tuple[int, int]]:
    """API key → versions of a build with every bundled plug-in."""
    served = {row.key: (row.min_version, row.max_version) for row in TABLE if not row.needs_transactions}
    types: list[GroupProtocol] = [ClassicGroupProtocol(), ConsumerGroupProtocol()]
    groups = group_types.handlers(cast("Any", AnyBroker()), types)
    served |= {handler.key: (handler.min_version, handler.max_version) for handler in groups}
    quorum = quorum_handlers(AnyBroker(), AnyBroker(), AnyBroker(), AnyBroker(), ("broker",))
    served |= {handler.key: (handler.min_version, handler.max_version) for handler in quorum}
    return served


def test_every_handler_module_has_its_row() -> None:
    """And every row its module; the API key stands in the file's name."""
    files = {f"{path.parent.name}.{path.stem}" for path in HANDLERS.glob("*/api_*.py")}
    assert files == {row.module for row in TABLE}
    assert all(row.module.partition(".")[2].startswith(f"api_{row.key:02}_") for row in TABLE)


@for_each(TABLE)
def test_a_module_serves_what_its_row_says(row: Row) -> None:
    """Versions and listeners, and its docstring begins with its name, key and versions."""
    module = import_module(f"blumfeld.broker.handlers.{row.module}")
    handler = next(h for h in module.handlers(cast("Any", AnyBroker())) if h.key == row.key)
    assert (handler.min_version, handler.max_version) == (row.min_version, row.max_version)
    assert handler.advertised_min == row.advertised_min
    assert tuple(handler.listeners) == row.listeners
    low, high = row.min_version, row.max_version
    versions = f"v{low}-{high}" if high != low else f"v{low}"
    assert f"(key {row.key}), {versions}" in (module.__doc__ or "")


def test_no_version_is_served_that_kafka_does_not_have() -> None:
    """Nor one that is not stable there."""
    for key, (low, high) in advertised().items():
        info = API_BY_KEY[key]
        assert info.min_version <= low <= high <= info.max_version, info.name


def test_what_only_a_cluster_with_a_zookeeper_speaks_is_not_advertised() -> None:
    """Keys 4 to 7 have messages, and no handler but those of the plug-in that brings a ZooKeeper."""
    zookeepers = {key for key, info in API_BY_KEY.items() if "zkBroker" in info.listeners}
    assert zookeepers == {4, 5, 6, 7}
    assert not zookeepers & set(advertised())


def test_what_is_said_not_to_be_advertised_is_not() -> None:
    """And what is neither advertised nor said to be missing has been forgotten."""
    text = (ROOT / "docs" / "not-implemented.md").read_text()
    missing: set[int] = set()
    for row in re.findall(r"^\| ([\d–, ]+) \|.*not advertised.*\|$", text, flags=re.M):
        for part in row.split(","):
            low, _, high = part.strip().partition("–")
            missing |= set(range(int(low), int(high or low) + 1))
    served = set(advertised())
    assert not missing & served
    controllers = {key for key, info in API_BY_KEY.items() if "broker" not in info.listeners}
    assert set(API_BY_KEY) - served - missing - controllers == set()


def test_what_kafka_has_for_kraft_alone_is_served_only_where_nodes_forward() -> None:
    def served(forwards: bool) -> set[int]:
        ports = SimpleNamespace(coordinators=dict, controller=SimpleNamespace(forwards=forwards))
        return {handler.key for handler in own_handlers(cast("Any", ports), authorizes=False)}

    assert served(True) - served(False) == {64}
