"""The null server in a thread of the test, made to misbehave."""

from __future__ import annotations

import os
import struct
import threading
import time
from types import TracebackType

from blumfeld.wire.messages.metadata import MetadataResponse, MetadataResponseBroker
from blumfeld_bench.drivers.wire.null_server import NullServer

TOPIC = "t"


class ScriptedServer(NullServer):
    """Serves while the ``with`` block lasts.

    :param stall_at_s: seconds after the first produce request, stop doing anything for ``stall_s``
    :param fail_every: each n-th produce request is answered NOT_LEADER_OR_FOLLOWER
    :param nonsense_at: the produce request that gets no proper answer
    :param peer: port of another server that leads every second partition
    """

    def __init__(
        self,
        *,
        partitions: int = 2,
        stall_at_s: float = 0.0,
        stall_s: float = 0.0,
        fail_every: int = 0,
        nonsense_at: int = 0,
        peer: int = 0,
    ) -> None:
        super().__init__(TOPIC, partitions, 0)
        self._stall_at_s, self._stall_s = stall_at_s, stall_s
        self._fail_every, self._nonsense_at, self._peer = fail_every, nonsense_at, peer
        self._first = 0.0
        self.produced = 0
        self._stop_from, self._stop_to = os.pipe()
        self._thread = threading.Thread(target=self.serve, args=(self._stop_from,))

    def __enter__(self) -> ScriptedServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.write(self._stop_to, b"x")
        self._thread.join(10)
        self.close()
        os.close(self._stop_from)
        os.close(self._stop_to)

    def produce_answer(self, number: int) -> bytes:
        self.produced += 1
        self._first = self._first or time.monotonic()
        if self._stall_s and time.monotonic() - self._first >= self._stall_at_s:
            time.sleep(self._stall_s)
            self._stall_s = 0.0
        answer = super().produce_answer(number)
        if self.produced == self._nonsense_at:
            return b"\0\0\0\4none"
        if self._fail_every and self.produced % self._fail_every == 0:
            at = 4 + 4 + 4 + 2 + len(TOPIC) + 4 + 4
            return answer[:at] + struct.pack(">h", 6) + answer[at + 2 :]
        return answer

    def _metadata(self) -> MetadataResponse:
        metadata = super()._metadata()
        if self._peer:
            metadata.brokers.append(MetadataResponseBroker(node_id=2, host="127.0.0.1", port=self._peer))
            for partition in metadata.topics[0].partitions[1::2]:
                partition.leader_id = 2
        return metadata
