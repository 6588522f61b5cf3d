"""For tests of storage_local: a node, which a file gives other settings by a fixture ``settings`` of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from blumfeld_kit.storage_driver.node import Node

from .local_node import Events, new_node


@pytest.fixture
def events() -> Events:
    return Events()


@pytest.fixture
def settings() -> dict[str, Any]:
    """The options of the node's storage."""
    return {}


@pytest.fixture
def node(events: Events, settings: dict[str, Any]) -> Iterator[Node]:
    node = new_node(events=events, **settings)
    yield node
    node.end()
