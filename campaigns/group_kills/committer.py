"""A group without members that does nothing but commit."""

from __future__ import annotations

import threading
import time

from blumfeld.client.errors import COORDINATOR_MOVES
from blumfeld.wire.messages.offset_commit import OffsetCommitResponse
from blumfeld_kit.simulation.clients.offsets import commit_request
from campaigns.clients.load.promises import GroupPromises
from campaigns.raw_connection import ConnectionEnded, RawConnection

GROUP = "committer"
COMMIT_VERSION = 8
END_S = 60.0


class Committer:
    """Commits rising offsets of all partitions in a thread, one request after the other."""

    def __init__(self, address: str, topic: str, partitions: int, promises: GroupPromises) -> None:
        self._address = address
        self._topic = topic
        self._partitions = partitions
        self._promises = promises
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._guarded, name=GROUP, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, and wait for it."""
        self._done.set()
        self._thread.join(END_S)
        if self._thread.is_alive():
            self._promises.wrong.append("the committer does not come to an end")

    def _guarded(self) -> None:
        try:
            self._work()
        except Exception as error:
            self._promises.wrong.append(f"the committer: {error!r}")

    def _work(self) -> None:
        """Commit; a request that isn't answered promises nothing."""
        offset = 0
        while not self._done.is_set():
            try:
                with RawConnection(self._address, 5.0) as connection:
                    while not self._done.is_set():
                        offset += 1
                        self._commit(connection, offset)
            except (OSError, ConnectionEnded):
                time.sleep(0.02)

    def _commit(self, connection: RawConnection, offset: int) -> None:
        request = commit_request(GROUP, {(self._topic, index): offset for index in range(self._partitions)})
        answer = connection.ask(request, COMMIT_VERSION, OffsetCommitResponse)
        for item in answer.topics[0].partitions:
            if not item.error_code:
                self._promises.commit(GROUP, (self._topic, item.partition_index), offset)
            elif item.error_code not in COORDINATOR_MOVES:
                self._promises.wrong.append(f"a commit was refused with {item.error_code}")
