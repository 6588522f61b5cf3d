"""Ports for servers that are started side by side."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from blumfeld.testing import process as broker_process
from blumfeld.testing.process import PORTS, free_port


def test_a_free_port_and_its_neighbours_can_be_listened_on() -> None:
    first = free_port(adjacent=3)
    assert first in PORTS
    for port in range(first, first + 3):
        socket.create_server(("127.0.0.1", port)).close()


def test_a_port_that_is_taken_is_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is one whose neighbour is taken."""
    first = free_port(adjacent=3)
    monkeypatch.setattr(broker_process, "PORTS", range(first, first + 2))
    with socket.create_server(("127.0.0.1", first)):
        assert free_port() == first + 1
        with socket.create_server(("127.0.0.1", first + 2)), pytest.raises(OSError, match="no free port"):
            free_port(adjacent=2)


def test_the_kernel_gives_away_other_ports() -> None:
    """Else a client of another process may get one between the choice and the server's start."""
    setting = Path("/proc/sys/net/ipv4/ip_local_port_range")
    if not setting.exists():
        pytest.skip("not Linux")
    lowest = int(setting.read_text().split()[0])
    if lowest < 32768:
        pytest.skip("this machine gives away more than Linux does by itself")
    assert PORTS.stop <= lowest
