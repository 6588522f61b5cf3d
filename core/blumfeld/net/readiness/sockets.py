"""Real sockets: resolves host names without blocking the loop, listens, connects.

The transports on the system's own sockets share it. Apart from ``selecting`` it is the only module of this room that
uses the operating system.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
import sys
from typing import Any, TypeAlias

from blumfeld.net.readiness.streams import SocketCalls
from blumfeld.spi.runtime import Runtime

FDS_FOR_FILES = 64
"""Descriptors reserved for files, so that connections can't use up those that serving them needs. With a small limit a
quarter of it is reserved."""

Address: TypeAlias = tuple[socket.AddressFamily, Any]
"""(family, address for ``bind`` and ``connect``)."""


async def resolve(runtime: Runtime, host: str, port: int, *, passive: bool) -> list[Address]:
    """Returns the addresses of ``host``, IPv4 first, because ``localhost`` is 127.0.0.1 for most clients.

    A numeric address needs no look-up. A name is looked up in a worker thread, because that may block.

    :param passive: for ``bind``: an empty host then means every address of this machine
    :raises OSError: the name is unknown
    """
    flags = socket.AI_PASSIVE if passive else 0
    wanted = (host or None, port, socket.AF_UNSPEC, socket.SOCK_STREAM, 0)
    try:
        addresses = socket.getaddrinfo(*wanted, flags | socket.AI_NUMERICHOST)
    except socket.gaierror:
        addresses = await runtime.offload(socket.getaddrinfo, *wanted, flags)
    addresses.sort(key=lambda entry: entry[0] != socket.AF_INET)
    return [(family, address) for family, _, _, _, address in addresses]


async def listening(runtime: Runtime, host: str, port: int, backlog: int) -> tuple[socket.socket, int]:
    """Returns a socket that listens on the first address of ``host``, and its port.

    :raises OSError: the address can't be bound
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
    """Returns a socket connected to the first address of ``host`` that answers. Uses the running loop.

    :raises OSError: no address answers
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
    """Set the options of a connected socket: no Nagle delay, and keep-alive probes that notice a vanished peer."""
    sock.setblocking(False)
    with contextlib.suppress(OSError):  # the peer may have gone already; the first read then reports it
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def connection_fd_max() -> int:
    """Returns the highest descriptor that an accepted connection may have. The ones above are reserved for files."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return sys.maxsize
    return limit - 1 - min(FDS_FOR_FILES, limit // 4)


def socket_calls(copies_regions: bool) -> SocketCalls:
    """Returns this system's calls for sending file regions; ``copies_regions`` does without ``sendfile``."""
    return SocketCalls(None if copies_regions else os.sendfile, getattr(socket, "MSG_MORE", 0))
