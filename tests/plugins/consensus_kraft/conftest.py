"""What several modules begin with."""

from __future__ import annotations

import pytest

from blumfeld_kit.fakes.files import FakeDisk
from tests.plugins.consensus_kraft.kraft_node import KraftNode


@pytest.fixture
def disk() -> FakeDisk:
    return FakeDisk()


@pytest.fixture
def node(disk: FakeDisk) -> KraftNode:
    """A quorum of one, whose broker serves."""
    started = KraftNode(disk).start()
    started.join()
    return started
