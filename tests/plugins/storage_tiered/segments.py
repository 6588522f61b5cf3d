"""A segment to upload: its metadata, its files on a simulated disk, and the rooms around it."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from typing import TypeVar

from blumfeld.spi.leader_epochs import EpochEntry
from blumfeld_kit.fakes.object_store import SimulatedBucket, SimulatedStore
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_storage_tiered.catalog.segment import RemoteSegment, TopicIdPartition
from blumfeld_storage_tiered.objects.names import SegmentFile
from blumfeld_storage_tiered.objects.segments import SegmentObjects
from blumfeld_storage_tiered.objects.upload import SegmentUpload, Verify

T = TypeVar("T")

PARTITION = TopicIdPartition(bytes(range(16)), 3, "ticks")
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
CHUNK = 1024
PART = 4 * CHUNK
LOG = random.Random(5).randbytes(2 * PART + 1500)


def segment(
    start_offset: int = 100, segment_id: bytes = bytes(range(100, 116)), size: int = len(LOG)
) -> RemoteSegment:
    """A segment of 50 offsets in two epochs."""
    return RemoteSegment(
        partition=PARTITION,
        segment_id=segment_id,
        start_offset=start_offset,
        end_offset=start_offset + 49,
        broker_id=1,
        max_timestamp_ms=1_700_000_000_123,
        event_timestamp_ms=1_700_000_001_000,
        leader_epochs=(EpochEntry(2, start_offset), EpochEntry(5, start_offset + 20)),
        size_bytes=size,
    )


class LocalStore(SimulatedStore):
    """Its objects are files of the node's disk: ``LocalObjectStore``."""

    async def local_file(self, key: str) -> str:
        """As ``LocalObjectStore.local_file``."""
        path, files = f"/store/{key}", self._runtime.files
        if key in self.bucket.keys():  # noqa: SIM118
            files.make_dirs(path.rpartition("/")[0])
            files.write_atomically(path, self.bucket.read(key))
        return path


class Rig:
    """A disk with one segment's files, a simulated store, and what uploads and reads."""

    def __init__(
        self,
        seed: int = 1,
        bucket: SimulatedBucket | None = None,
        verify: Verify = "size",
        store_class: type[SimulatedStore] = SimulatedStore,
    ) -> None:
        self.runtime = FakeRuntime(seed)
        self.bucket = SimulatedBucket() if bucket is None else bucket
        self.store = store_class(self.runtime, self.bucket)
        self.paced: list[int] = []
        self.sources: dict[SegmentFile, str | bytes] = {
            SegmentFile.LOG: self._file("log", LOG),
            SegmentFile.OFFSET_INDEX: self._file("index", b"\0" * 24),
            SegmentFile.TIME_INDEX: self._file("timeindex", b"\1" * 36),
            SegmentFile.TRANSACTION_INDEX: self._file("txnindex", b"\2" * 34),
            SegmentFile.PRODUCER_SNAPSHOT: b"snapshot",
            SegmentFile.LEADER_EPOCHS: b"0\n1\n0 0\n",
        }
        self.uploads = SegmentUpload(
            self.runtime, self.store, CLUSTER_ID, verify=verify, part_bytes=PART, chunk_bytes=CHUNK
        )
        self.segments = SegmentObjects(self.runtime, self.store)

    def _file(self, suffix: str, data: bytes) -> str:
        path = f"/data/ticks-3/00000000000000000100.{suffix}"
        self.runtime.files.make_dirs("/data/ticks-3")
        file = self.runtime.files.open(path, create=True)
        file.pwritev([data], 0)
        file.close()
        return path

    async def pace(self, size: int) -> None:
        """Let everything through, and note it."""
        self.paced.append(size)

    def upload(self, uploaded: RemoteSegment) -> bytes:
        """Upload the files as this segment."""
        return self.runtime.run(self.uploads.upload(uploaded, self.sources, self.pace))


async def collect(values: AsyncIterator[T]) -> list[T]:
    """All values of an async iterator."""
    return [value async for value in values]
