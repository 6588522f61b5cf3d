"""A small ring, and two sockets that are connected."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from blumfeld_net_uring.io_uring.ring import Ring

from .ring_tools import open_ring


@pytest.fixture
def ring() -> Iterator[Ring]:
    """8 entries, 16 completions."""
    with open_ring() as ring:
        yield ring


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    near, far = socket.socketpair()
    near.settimeout(5)
    far.settimeout(5)
    with near, far:
        yield near, far
