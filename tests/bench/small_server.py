"""A server that answers ApiVersions, Metadata, CreateTopics and ListOffsets with nothing behind them: up in 50 ms.

``python small_server.py PORT FOLDER [BROKERS]``. It forks a child that keeps it company, as start scripts do.
"""

from __future__ import annotations

import os
import socketserver
import struct
import sys
import time
from typing import Any


def main() -> None:
    port, folder = int(sys.argv[1]), sys.argv[2]
    os.makedirs(os.path.join(folder, "data"), exist_ok=True)
    if os.fork() == 0:
        while os.getppid() != 1:
            time.sleep(0.01)
        return
    socketserver.ThreadingTCPServer.allow_reuse_address = True
    socketserver.ThreadingTCPServer.daemon_threads = True
    with socketserver.ThreadingTCPServer(("127.0.0.1", port), Connection) as server:
        server.serve_forever()


class Connection(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        while frame := _frame(self.request):
            key, _, correlation_id = struct.unpack_from(">hhi", frame)
            body = ANSWERS[key](frame)
            self.request.sendall(struct.pack(">ii", len(body) + 4, correlation_id) + body)


def _frame(connection: Any) -> bytes:
    head = connection.recv(4)
    if len(head) < 4:
        return b""
    (size,) = struct.unpack(">i", head)
    data = b""
    while len(data) < size:
        data += connection.recv(size - len(data))
    return data


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _api_versions(frame: bytes) -> bytes:
    return struct.pack(">hi", 0, 1) + struct.pack(">hhh", 18, 0, 0)


def _metadata(frame: bytes) -> bytes:
    """Version 8: throttle, brokers, cluster, controller, topics with one partition each, operations."""
    brokers = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    answer = struct.pack(">ii", 0, brokers)
    for node in range(brokers):
        answer += struct.pack(">i", node + 1) + _string("127.0.0.1") + struct.pack(">i", int(sys.argv[1]))
        answer += struct.pack(">h", -1)
    answer += struct.pack(">h", -1) + struct.pack(">i", 1)
    topic = _asked_topic(frame)
    answer += struct.pack(">i", 1 if topic else 0)
    if topic:
        answer += struct.pack(">h", 0) + _string(topic) + struct.pack(">b", 0) + struct.pack(">i", 1)
        answer += struct.pack(">hiii", 0, 0, 1, 0) + struct.pack(">i", 0) * 3 + struct.pack(">i", 0)
    return answer + struct.pack(">i", 0)


def _asked_topic(frame: bytes) -> str:
    (client_id_size,) = struct.unpack_from(">h", frame, 8)
    at = 10 + max(0, client_id_size)
    (count,) = struct.unpack_from(">i", frame, at)
    if count < 1:
        return ""
    (size,) = struct.unpack_from(">h", frame, at + 4)
    return frame[at + 6 : at + 6 + size].decode()


def _create_topics(frame: bytes) -> bytes:
    name = _asked_topic(frame)
    return struct.pack(">ii", 0, 1) + _string(name) + struct.pack(">hh", 0, -1)


def _list_offsets(frame: bytes) -> bytes:
    """Version 4: the topic's name stands after the replica and the isolation level."""
    (client_id_size,) = struct.unpack_from(">h", frame, 8)
    at = 10 + max(0, client_id_size) + 5
    (size,) = struct.unpack_from(">h", frame, at + 4)
    name = frame[at + 6 : at + 6 + size].decode()
    answer = struct.pack(">ii", 0, 1) + _string(name) + struct.pack(">i", 1)
    return answer + struct.pack(">ihqqi", 0, 0, -1, 0, 0)


ANSWERS = {2: _list_offsets, 3: _metadata, 18: _api_versions, 19: _create_topics}

if __name__ == "__main__":
    main()
