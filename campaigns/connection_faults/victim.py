"""Processes that are killed while their connections are open, a program of its own: ``python -m …victim``.

It reads one order, in JSON, from its input. For each of ``processes`` it forks a child that opens ``connections``,
sends the same bytes on each and receives ``receive_bytes``; then the child is killed (SIGKILL), so that the kernel ends
its connections. It imports nothing that makes forking slow. Prints how many connections died so.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import time
from typing import Any

TIMEOUT_S = 20.0


def child(order: dict[str, Any], nth: int, ready: int) -> None:
    """Open, send, receive, say so, and wait for the end."""
    host, _, port = order["address"].rpartition(":")
    data = bytes.fromhex(order["data"])
    kept = []
    for _ in range(order["connections"]):
        source = f"127.0.1.{1 + nth % 200}"
        sock = socket.create_connection((host, int(port)), TIMEOUT_S, (source, 0))
        send(sock, data)
        left = order["receive_bytes"]
        while left and (part := sock.recv(left)):
            left -= len(part)
        kept.append(sock)
    os.write(ready, b"!")
    signal.pause()


def send(sock: socket.socket, data: bytes) -> None:
    """As much as the broker takes: it need not read on while answers are open."""
    sock.settimeout(0.5)
    with contextlib.suppress(TimeoutError):  # cut off even better
        sock.sendall(data)
    sock.settimeout(TIMEOUT_S)


def main() -> int:
    """0 if every child came to the point where it was to be killed."""
    order = json.load(sys.stdin)
    died = 0
    for nth in range(order["processes"]):
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                child(order, nth, writer)
            finally:
                os._exit(1)
        os.close(writer)
        died += order["connections"] * len(os.read(reader, 1))
        time.sleep(order["linger_s"])
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(reader)
    print(died)
    return 0 if died == order["processes"] * order["connections"] else 1


if __name__ == "__main__":
    sys.exit(main())
