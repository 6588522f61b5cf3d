"""From a host name to socket addresses, without blocking the loop."""

from __future__ import annotations

import socket
from typing import Any, TypeAlias

from blumfeld.spi.runtime import Runtime

Address: TypeAlias = tuple[socket.AddressFamily, Any]
"""(family, what ``bind`` and ``connect`` take)."""


async def resolve(runtime: Runtime, host: str, port: int, *, passive: bool) -> list[Address]:
    """The addresses of ``host``, IPv4 first: ``localhost`` is 127.0.0.1 for every client.

    A numeric one is never looked up; a name is, in a worker thread.

    ``passive`` is for ``bind``: an empty host is then every address of this machine.

    :raises OSError: the name is not known
    """
    flags = socket.AI_PASSIVE if passive else 0
    wanted = (host or None, port, socket.AF_UNSPEC, socket.SOCK_STREAM, 0)
    try:
        found = socket.getaddrinfo(*wanted, flags | socket.AI_NUMERICHOST)
    except socket.gaierror:
        found = await runtime.offload(socket.getaddrinfo, *wanted, flags)
    found.sort(key=lambda entry: entry[0] != socket.AF_INET)
    return [(family, address) for family, _, _, _, address in found]
