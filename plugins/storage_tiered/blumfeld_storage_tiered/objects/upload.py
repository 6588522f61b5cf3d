"""Uploads a segment. Memory is bounded by a few parts, whatever the size of the segment."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Literal, TypeAlias

import msgspec
from crc32c import crc32c

from blumfeld.spi.object_store import ObjectStore
from blumfeld.spi.runtime import File, Runtime
from blumfeld_storage_tiered.catalog.segment import RemoteSegment
from blumfeld_storage_tiered.objects.manifest import (
    CHUNK_BYTES,
    FileFacts,
    SegmentCorruptError,
    crcs_of_chunks,
    custom_metadata_of,
    encode_manifest,
    manifest_of,
)
from blumfeld_storage_tiered.objects.names import MANIFEST, REQUIRED, SegmentFile, object_key

PART_BYTES = 8 << 20
"""Bytes of a part: what is read at once, and what one request of a multipart upload carries (S3 wants 5 MiB)."""

Pace: TypeAlias = "Callable[[int], Awaitable[None]]"
"""Waits until so many bytes may be sent: the gate of ``remote.log.manager.copy.max.bytes.per.second``."""
Verify: TypeAlias = Literal["size", "read"]
"""``size``: the store tells the size of each object. ``read``: each object is read back and its checksum compared."""
Sources: TypeAlias = "Mapping[SegmentFile, str | bytes]"
"""The files of a segment: a path of ``runtime.files``, or the bytes of a small file."""


class SegmentUpload:
    """Uploads segments to one store for one cluster.

    What fails, or is cancelled, at any point leaves no manifest: its objects are garbage, and the next attempt has
    another segment id. One exception: if only the answer to the manifest's put was lost, the segment in the store is
    whole, though the upload failed.

    :param still_ours: raises ``StoreError`` if the store isn't the one that the node began with. It is asked first, and
        again at the end: a folder that isn't mounted any more takes every object, and hides them when it is mounted
    """

    def __init__(
        self,
        runtime: Runtime,
        store: ObjectStore,
        cluster_id: str,
        *,
        still_ours: Callable[[], Awaitable[None]] | None = None,
        verify: Verify = "size",
        part_bytes: int = PART_BYTES,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        if part_bytes % chunk_bytes:
            raise ValueError(f"a part of {part_bytes} bytes isn't whole chunks of {chunk_bytes}")
        self._runtime = runtime
        self._store = store
        self._cluster_id = cluster_id
        self._still_ours = still_ours
        self._verify = verify
        self._part_bytes = part_bytes
        self._chunk_bytes = chunk_bytes

    async def upload(self, segment: RemoteSegment, sources: Sources, pace: Pace) -> bytes:
        """Upload all files of a segment, verify them, then write the manifest. Returns the record's
        ``custom_metadata``.

        :param sources: sealed files, each with the content that it keeps; the log has ``segment.size_bytes``
        :param pace: awaited before each part
        :raises StoreError: a request failed; nothing is retried here
        :raises SegmentCorruptError: what the store holds isn't what was sent
        :raises OSError: a local file can't be read, or is shorter or longer than it should be
        :raises ValueError: a file that Kafka reads of every segment is missing in ``sources``
        """
        if missing := [kind.value for kind in REQUIRED if kind not in sources]:
            raise ValueError(f"a segment without {', '.join(missing)}")
        await self._check_place()
        files: dict[str, FileFacts] = {}
        chunk_crcs: list[int] = []
        for kind, source in sources.items():
            key = object_key(segment, kind.value)
            is_log = kind is SegmentFile.LOG
            facts = await self._send(key, source, chunk_crcs if is_log else [], pace)
            if is_log and facts.size_bytes != segment.size_bytes:
                size_text = f"{source!r} has {facts.size_bytes} bytes"
                raise OSError(
                    f"the log of a segment changed during its upload: {size_text}, not {segment.size_bytes}"
                )
            files[kind.value] = facts
        for kind in sources:
            await self._check(object_key(segment, kind.value), files[kind.value])
        packed = crcs_of_chunks(chunk_crcs)
        manifest = encode_manifest(manifest_of(segment, self._cluster_id, files, self._chunk_bytes, packed))
        await self._store.put(object_key(segment, MANIFEST), manifest)
        await self._check_place()
        return custom_metadata_of(manifest)

    async def _check_place(self) -> None:
        if self._still_ours is not None:
            await self._still_ours()

    async def _send(self, key: str, source: str | bytes, chunk_crcs: list[int], pace: Pace) -> FileFacts:
        if isinstance(source, bytes):
            facts = FileFacts(len(source), crc32c(source))
            await pace(len(source))
            await self._store.put(key, source)
            return facts
        file = self._runtime.files.open(source, write=False)
        try:
            reader = _PartReader(self._runtime, file, self._part_bytes, self._chunk_bytes, chunk_crcs)
            first = await reader.read()
            if len(first) < self._part_bytes:
                await pace(len(first))
                await self._store.put(key, first)
            else:
                await self._store.put_parts(key, reader.parts(first, pace))
            return FileFacts(reader.position, reader.crc)
        finally:
            file.close()

    async def _check(self, key: str, sent: FileFacts) -> None:
        info = await self._store.head(key)
        if info.size_bytes != sent.size_bytes:
            raise SegmentCorruptError(key, f"{info.size_bytes} bytes", f"{sent.size_bytes} bytes")
        if self._verify == "read":
            await check_bytes(self._runtime, self._store, key, sent, self._part_bytes)


async def check_bytes(
    runtime: Runtime, store: ObjectStore, key: str, written: FileFacts, part_bytes: int = PART_BYTES
) -> None:
    """Read a whole object, part by part, and compare its size and its checksum.

    :raises SegmentCorruptError: it isn't what was written
    """
    position = crc = 0
    while position < written.size_bytes:
        size = min(part_bytes, written.size_bytes - position)
        data = await store.get_range(key, position, size)
        if len(data) != size:
            raise SegmentCorruptError(key, f"{position + len(data)} bytes", f"{written.size_bytes} bytes")
        crc = await runtime.offload(crc32c, data, crc)
        position += size
    if crc != written.crc32c:
        raise SegmentCorruptError(key, f"CRC32C {crc:08x}", f"{written.crc32c:08x}")


class _Part(msgspec.Struct):
    data: bytes
    crc: int
    chunk_crcs: list[int]


class _PartReader:
    """Reads a file part by part in workers, and takes its checksums on the way."""

    def __init__(
        self, runtime: Runtime, file: File, part_bytes: int, chunk_bytes: int, chunk_crcs: list[int]
    ) -> None:
        self.position = 0
        self.crc = 0
        self._runtime = runtime
        self._file = file
        self._part_bytes = part_bytes
        self._chunk_bytes = chunk_bytes
        self._chunk_crcs = chunk_crcs

    async def read(self) -> bytes:
        """Returns the next part; fewer bytes than a part only at the end of the file, which may be none."""
        part = await self._runtime.offload(
            _read_part, self._file, self.position, self._part_bytes, self._chunk_bytes, self.crc
        )
        self.position += len(part.data)
        self.crc = part.crc
        self._chunk_crcs += part.chunk_crcs
        return part.data

    async def parts(self, first: bytes, pace: Pace) -> AsyncIterator[bytes]:
        """Yields ``first`` and the rest of the file."""
        part = first
        while part:
            await pace(len(part))
            yield part
            part = await self.read() if len(part) == self._part_bytes else b""


def _read_part(file: File, position: int, part_bytes: int, chunk_bytes: int, crc: int) -> _Part:
    pieces: list[bytes] = []
    missing = part_bytes
    while missing and (piece := file.pread(missing, position + part_bytes - missing)):
        pieces.append(piece)
        missing -= len(piece)
    data = b"".join(pieces)
    view = memoryview(data)
    chunks = [crc32c(view[at : at + chunk_bytes]) for at in range(0, len(data), chunk_bytes)]
    return _Part(data, crc32c(data, crc), chunks)
