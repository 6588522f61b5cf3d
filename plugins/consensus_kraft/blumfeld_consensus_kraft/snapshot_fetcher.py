"""Fetches a snapshot from the leader: asks for part after part until the image is there, or gives up."""

from __future__ import annotations

from collections.abc import Callable

from blumfeld.metadata.image.checkpoint import CheckpointId
from blumfeld.metadata.image.sections import NO_SECTIONS, SectionKinds
from blumfeld.spi.completion import Completion
from blumfeld.spi.runtime import Runtime, pause
from blumfeld.wire.errors import BrokerError
from blumfeld.wire.messages.fetch_snapshot import FetchSnapshotResponse
from blumfeld.wire.schema import Message
from blumfeld_consensus_kraft.kept_snapshots import KeptSnapshots
from blumfeld_consensus_kraft.snapshot_download import SnapshotDownload
from blumfeld_consensus_kraft.snapshot_server import chunk_of, snapshot_request
from blumfeld_consensus_kraft.snapshot_source import CHUNK_BYTES_MAX
from blumfeld_consensus_kraft.stored_state import Loaded

LOST_MAX = 5
"""Requests in a row without an answer after which a download is given up. What came is kept for the same leader."""
RETRY_MS = 100
"""Pause after a request without an answer."""


class SnapshotFetcher:
    """One download at a time. Of an older one nothing is told any more.

    :param ask: sends a request to a node; completes with the response, or fails with ``OSError`` or ``BrokerError``
    :param alive: called with the epoch when the leader has sent a part, and now and then while the image is made:
        the leader is not to be given up meanwhile
    :param fetched: called with the epoch, the snapshot and its image. The file is in its place, and the log is still
        the old one: ``RaftLog.truncate_fully_to`` comes next
    :param failed: called with the epoch and the reason
    """

    def __init__(
        self,
        runtime: Runtime,
        kept: KeptSnapshots,
        ask: Callable[[int, Message], Completion[Message]],
        *,
        cluster_id: str,
        replica: tuple[int, bytes],
        alive: Callable[[int], None],
        fetched: Callable[[int, CheckpointId, Loaded], None],
        failed: Callable[[int, Exception], None],
        bytes_max: int = CHUNK_BYTES_MAX,
        section_kinds: SectionKinds = NO_SECTIONS,
    ) -> None:
        self._runtime = runtime
        self._bytes_max = bytes_max
        self._ask = ask
        self._cluster_id = cluster_id
        self._replica = replica
        self._alive = alive
        self._fetched = fetched
        self._failed = failed
        self._section_kinds = section_kinds
        self._download = SnapshotDownload(runtime, kept)
        self._number = 0
        self._running: tuple[int, int, CheckpointId] | None = None

    def fetch(self, leader_id: int, epoch: int, snapshot: CheckpointId) -> None:
        """Fetch a snapshot, in place of what is fetched now. Does nothing if that is the same."""
        wanted = (leader_id, epoch, snapshot)
        if wanted == self._running:
            return
        if self._running is not None:
            self._download.abort()  # a part of it may be on its way
        self._running = wanted
        self._number += 1
        self._download.aim(leader_id, snapshot)
        self._runtime.spawn(self._run(self._number, leader_id, epoch, snapshot), f"fetch {snapshot.name}")

    def stop(self) -> None:
        """Fetch nothing any more."""
        self._number += 1
        self._running = None
        self._download.abort()

    async def _run(self, number: int, leader_id: int, epoch: int, snapshot: CheckpointId) -> None:
        def alive() -> None:
            if number == self._number:
                self._alive(epoch)

        try:
            while not await self._next_part(number, leader_id, epoch, snapshot):
                if number != self._number:
                    return
                alive()
            loaded = await self._download.finish(self._cluster_id, self._section_kinds, alive)
        except (OSError, ValueError, BrokerError) as error:
            if number == self._number:
                self._running = None
                self._failed(epoch, error)
            return
        if number == self._number:
            self._running = None
            self._fetched(epoch, snapshot, loaded)

    async def _next_part(self, number: int, leader_id: int, epoch: int, snapshot: CheckpointId) -> bool:
        position = self._download.position
        request = snapshot_request(
            self._cluster_id, self._replica, epoch, snapshot, position, self._bytes_max
        )
        response = await self._answer(number, leader_id, request)
        if number != self._number:
            return False
        try:
            chunk = chunk_of(response, snapshot)
        except ValueError:
            self._download.abort()
            raise
        return await self._download.received(chunk)

    async def _answer(self, number: int, leader_id: int, request: Message) -> FetchSnapshotResponse:
        lost = 0
        while True:
            try:
                response = await self._ask(leader_id, request)
            except OSError:
                lost += 1
                if lost == LOST_MAX or number != self._number:
                    raise
                await pause(self._runtime, RETRY_MS)
            else:
                assert isinstance(response, FetchSnapshotResponse)
                return response
