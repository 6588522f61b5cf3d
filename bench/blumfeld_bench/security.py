"""What the drivers do at a server that wants TLS or a login: the file of ``--command-config``, in each process."""

from __future__ import annotations

import select
import ssl
from collections.abc import Callable
from functools import cache
from typing import Any

from blumfeld.client.security.command_config import (
    PLAINTEXT,
    ClientSecurity,
    read_command_config,
)
from blumfeld.kernel.runtime.real_files import RealFiles


class TlsSocket(ssl.SSLSocket):
    """A socket with TLS whose calls fail as those of one without: ``BlockingIOError`` where they would have to wait.

    OpenSSL may hold bytes that the kernel has given away already, so no poll tells of them: :meth:`drained`.
    """

    def send(self, data: Any, flags: int = 0) -> int:
        """As ``socket.send``. After ``BlockingIOError`` the next call must have the same bytes."""
        try:
            return super().send(data, flags)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        """As ``socket.recv``."""
        try:
            return super().recv(buflen, flags)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None

    def recv_into(self, buffer: Any, nbytes: int | None = None, flags: int = 0) -> int:
        """As ``socket.recv_into``."""
        try:
            return super().recv_into(buffer, nbytes, flags)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None

    def drained(self, handler: Callable[[int], None]) -> Callable[[int], None]:
        """Return a handler that is called again while OpenSSL holds bytes."""

        def handle(mask: int) -> None:
            handler(mask)
            while self.pending():
                handler(select.EPOLLIN)

        return handle


@cache
def security_at(path: str) -> ClientSecurity:
    """Return what a file says, read once in this process; PLAINTEXT for no path.

    :raises CommandConfigError: the file can't be used
    """
    if not path:
        return PLAINTEXT
    security = read_command_config(path, RealFiles()).client_security(RealFiles())
    if security.context is not None:
        security.context.sslsocket_class = TlsSocket
    return security


def librdkafka_at(path: str) -> dict[str, Any]:
    """Return the same as settings of librdkafka.

    :raises CommandConfigError: the file can't be used
    """
    return read_command_config(path, RealFiles()).librdkafka(RealFiles()) if path else {}
