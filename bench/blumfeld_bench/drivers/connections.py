"""Shared parts of all driver processes: connections, idle connections, and the pipe to the parent."""

from __future__ import annotations

import ctypes
import itertools
import os
import resource
import socket
from collections.abc import Iterable, Iterator
from typing import BinaryIO

import msgspec

from blumfeld.client.blocking_connection import BlockingConnection
from blumfeld.client.errors import NotSecuredError
from blumfeld.client.frames import request_frame
from blumfeld.client.security.command_config import PLAINTEXT, ClientSecurity, CommandConfigError
from blumfeld.wire.messages.api_versions import ApiVersionsRequest
from blumfeld_bench.drivers.contract import DriverError
from blumfeld_bench.drivers.frames import CLIENT_ID
from blumfeld_bench.drivers.spec import ProcessSpec, Said, share
from blumfeld_bench.security import security_at

CONNECT_TIMEOUT_S = 20.0
AT_A_TIME = 32
PR_SET_TIMERSLACK = 29
NOT_FIRST = "the driver can't go first: SCHED_RR takes root, or CAP_SYS_NICE"


def say(out: BinaryIO, message: Said) -> None:
    """Write one line to the parent."""
    out.write(msgspec.json.encode(message) + b"\n")
    out.flush()


def raise_descriptor_limit() -> None:
    """Raise the limit of open descriptors as far as the system allows: a step may want thousands of connections."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def sleep_precisely() -> None:
    """Turn the kernel's timer slack off. With it a timer may fire 50 µs late, to save wake-ups."""
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1)


def go_first() -> None:
    """Let this process run before every process of the ordinary policy, the server's among them.

    The driver then never waits for a core, but the server waits for the driver. With fewer cores than the server has
    busy threads, that favours a server with one thread, so a run has to ask for it. Niceness would not do: the kernel
    weighs it only among the processes of one session.

    :raises DriverError: this process isn't allowed to (it takes root, or CAP_SYS_NICE)
    """
    try:
        _run_first()
    except PermissionError as error:
        raise DriverError(NOT_FIRST) from error


def may_go_first() -> bool:
    """Whether this process and its children may call :func:`go_first`."""
    policy, priority = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        _run_first()
    except PermissionError:
        return False
    os.sched_setscheduler(0, policy, priority)
    return True


def _run_first() -> None:
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(os.sched_get_priority_min(os.SCHED_RR)))


def connect(
    addresses: Iterable[tuple[str, int]], security: ClientSecurity = PLAINTEXT
) -> list[socket.socket]:
    """Return one connection for each address, in order, ready for an event loop. Each is logged in, and has had an
    ApiVersions request answered.

    They are made a few at a time. More would overflow the server's backlog, and the kernel retries only after a
    second.

    :raises DriverError: a connection was refused, or the server closed it
    """
    hello = request_frame(ApiVersionsRequest(), 0, 1, CLIENT_ID)
    socks: list[socket.socket] = []
    for some in _chunks(addresses):
        fresh = [_connect(address, security) for address in some]
        for sock in fresh:
            sock.sendall(hello)
        for sock in fresh:
            _hear(sock)
            sock.setblocking(False)
        socks += fresh
    return socks


def connect_idle(spec: ProcessSpec) -> list[socket.socket]:
    """Return this process's share of the step's idle connections.

    :raises DriverError: as :func:`connect`
    """
    mine = share(spec.step.idle_connections, spec.index, spec.processes)
    return connect([(spec.host, spec.port)] * len(mine), security_at(spec.command_config))


def _chunks(addresses: Iterable[tuple[str, int]]) -> Iterator[list[tuple[str, int]]]:
    rest = iter(addresses)
    while some := list(itertools.islice(rest, AT_A_TIME)):
        yield some


def _connect(address: tuple[str, int], security: ClientSecurity) -> socket.socket:
    try:
        return BlockingConnection(*address, CLIENT_ID, CONNECT_TIMEOUT_S, security=security).detached()
    except NotSecuredError as error:
        raise DriverError(str(error)) from error
    except (OSError, CommandConfigError) as error:
        raise DriverError(f"can't connect to {address[0]}:{address[1]}: {error}") from error


def _hear(sock: socket.socket) -> None:
    """Read one answer and ignore its content."""
    data = b""
    left = 4
    try:
        while left:
            part = sock.recv(left)
            if not part:
                raise DriverError("the server hung up on a new connection")
            data += part
            left = 4 + int.from_bytes(data[:4], "big") - len(data) if len(data) >= 4 else 4 - len(data)
    except OSError as error:
        raise DriverError(f"a new connection: {error}") from error
