"""Sockets: from a host name to addresses without blocking the loop, to one that listens, to one that is connected.

The one module of this room that touches the world: every transport on the system's own sockets needs the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
import sys
from typing import Any, TypeAlias

from blumfeld.net.socket_sending import SocketCalls
from blumfeld.spi.runtime import Runtime

FDS_FOR_FILES = 64
"""Kept for what the broker must open to serve those who are connected; of a small limit, a quarter."""

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


async def listening(runtime: Runtime, host: str, port: int, backlog: int) -> tuple[socket.socket, int]:
    """A socket that listens on the first address of ``host``, and its port.

    :raises OSError: it can't be had
    """
    (family, where), *_ = await resolve(runtime, host, port, passive=True)
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(where)
        sock.listen(backlog)
    except BaseException:
        sock.close()
        raise
    return sock, sock.getsockname()[1]


async def connected(runtime: Runtime, host: str, port: int) -> socket.socket:
    """A socket that is connected to the first address of ``host`` that answers, on the running loop.

    :raises OSError: none does
    """
    failure: OSError | None = None
    for address in await resolve(runtime, host, port, passive=False):
        try:
            return await _connected(address)
        except OSError as error:
            failure = error
    raise failure if failure is not None else OSError(f"{host} has no address")


async def _connected(address: Address) -> socket.socket:
    family, where = address
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        prepare(sock)
        await asyncio.get_running_loop().sock_connect(sock, where)
    except BaseException:
        sock.close()
        raise
    return sock


def prepare(sock: socket.socket) -> None:
    """Options of a connected socket: no waiting for more to send, and a probe for peers that vanished."""
    sock.setblocking(False)
    with contextlib.suppress(OSError):  # the peer may have gone already: the first read will tell
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def connection_fd_max() -> int:
    """The highest descriptor that an accepted connection may have: those above, up to our limit, are for files."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return sys.maxsize
    return limit - 1 - min(FDS_FOR_FILES, limit // 4)


def socket_calls(copies_regions: bool) -> SocketCalls:
    """What this system does beside a socket's own methods."""
    return SocketCalls(None if copies_regions else os.sendfile, getattr(socket, "MSG_MORE", 0))
