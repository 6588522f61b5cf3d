"""Reads, lists, verifies and deletes the segments of a store."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

import msgspec
from crc32c import crc32c

from blumfeld.spi.object_store import (
    ObjectBytes,
    ObjectInfo,
    ObjectNotFoundError,
    ObjectStore,
    StoreUnavailableError,
    local_file,
)
from blumfeld.spi.runtime import Files, Runtime
from blumfeld.wire.primitives import uuid_text
from blumfeld_storage_tiered.catalog.segment import RemoteSegment
from blumfeld_storage_tiered.objects.manifest import (
    SegmentCorruptError,
    SegmentManifest,
    custom_metadata_of,
    decode_manifest,
)
from blumfeld_storage_tiered.objects.names import MANIFEST, SegmentFile, SegmentName, object_key, parse_key
from blumfeld_storage_tiered.objects.upload import check_bytes

MANIFESTS_KEPT = 64
"""Manifests that are kept in memory, those of the segments that were read last: about 4 KiB for a GiB of log."""
MANIFEST_BYTES_MAX = 16 << 20
"""A larger object is no manifest: 16 MiB has the checksums of a log of 3 TiB."""

CHECKS_AT_ONCE_MAX = 2
"""Checks of files in place at the same time: two of the four threads of ``Runtime.offload`` stay free."""


class FilePiece(NamedTuple):
    """A piece of an object that is a file of this machine, and was checked there."""

    path: str
    start: int
    size_bytes: int
    file_bytes: int
    """Bytes of the whole file."""
    modified_ms: int | None = None
    """When the file had last been changed as it was checked; ``None``: nobody changes it."""


class StoredSegment(msgspec.Struct, frozen=True):
    """A segment as a listing shows it."""

    name: SegmentName
    objects: dict[str, ObjectInfo]
    """By suffix. A listing may lag: an object may be missing here, or be gone."""

    @property
    def is_whole(self) -> bool:
        """Whether it has a manifest. Without one its objects are garbage, or an upload is under way."""
        return MANIFEST in self.objects

    @property
    def modified_ms(self) -> int:
        """When the last of its objects was written, by the store's clock: the age of garbage."""
        return max(info.modified_ms for info in self.objects.values())

    @property
    def size_bytes(self) -> int:
        """Bytes of all its objects."""
        return sum(info.size_bytes for info in self.objects.values())


class SegmentProblem(msgspec.Struct, frozen=True, order=True):
    """An object of a segment that isn't what was written."""

    key: str
    found: str
    written: str


class SegmentObjects:
    """The segments of one store. Everything may raise :class:`StoreError`; nothing is retried here."""

    def __init__(self, runtime: Runtime, store: ObjectStore) -> None:
        self._runtime = runtime
        self._store = store
        self._manifests: OrderedDict[bytes, SegmentManifest] = OrderedDict()
        self._checks = asyncio.Semaphore(CHECKS_AT_ONCE_MAX)

    async def manifest(self, segment: RemoteSegment) -> SegmentManifest:
        """Returns the manifest of a segment.

        :raises ObjectNotFoundError: the segment isn't whole, or is deleted
        :raises SegmentCorruptError: it is none, or that of another segment, or not the one that the record vouches for
        """
        kept = self._manifests.get(segment.segment_id)
        if kept is not None:
            self._manifests.move_to_end(segment.segment_id)
            return kept
        manifest, _ = await self._read_manifest(object_key(segment, MANIFEST), segment)
        self._manifests[segment.segment_id] = manifest
        if len(self._manifests) > MANIFESTS_KEPT:
            self._manifests.popitem(last=False)
        return manifest

    async def _read_manifest(
        self, key: str, segment: RemoteSegment | SegmentName
    ) -> tuple[SegmentManifest, bytes]:
        data = await self._store.get_range(key, 0, MANIFEST_BYTES_MAX)
        manifest = decode_manifest(key, data)
        identity = (manifest.topic_id, manifest.partition, manifest.segment_id, manifest.start_offset)
        partition = segment.partition
        written = (
            uuid_text(partition.topic_id), partition.partition, uuid_text(segment.segment_id), segment.start_offset,
        )  # fmt: skip
        if identity != written:
            raise SegmentCorruptError(key, f"the manifest of {identity}", f"that of {written}")
        custom_metadata = custom_metadata_of(data)
        if isinstance(segment, RemoteSegment) and segment.custom_metadata not in (None, custom_metadata):
            vouched = (segment.custom_metadata or b"").hex()
            raise SegmentCorruptError(key, f"checksum {custom_metadata.hex()}", f"{vouched}, says the record")
        return manifest, custom_metadata

    async def read_range(self, segment: RemoteSegment, start: int, size: int) -> ObjectBytes | FilePiece:
        """Returns ``size`` bytes of the log from ``start`` on; fewer only at its end. Of a store on the disks of this
        machine it returns the place in the file.

        Every chunk that lies whole in the range is checked. A reader that asks for whole chunks (``manifest()`` says
        how long they are) gets nothing unchecked.

        :raises SegmentCorruptError: the bytes aren't those that were written
        """
        manifest = await self.manifest(segment)
        key = object_key(segment, SegmentFile.LOG.value)
        log_bytes = manifest.files[SegmentFile.LOG.value].size_bytes
        size = max(0, min(size, log_bytes - start))
        if size == 0:
            return b""
        path = await local_file(self._store, key)
        if path is not None:
            piece = FilePiece(path, start, size, log_bytes)
            async with self._checks:
                return await self._runtime.offload(_check_in_place, self._runtime.files, key, manifest, piece)
        data = await self._store.get_range(key, start, size)
        if len(data) != size:
            raise SegmentCorruptError(key, f"{start + len(data)} bytes", f"{log_bytes} bytes")
        await self._runtime.offload(_check_data, key, manifest, log_bytes, start, data)
        return data

    async def read_file(self, segment: RemoteSegment, kind: SegmentFile) -> bytes | None:
        """Returns a whole file, checked; ``None`` if the segment has none of this kind. It comes into memory: for a log
        take :meth:`read_range`.

        :raises SegmentCorruptError: it isn't what was written
        """
        facts = (await self.manifest(segment)).facts(kind)
        if facts is None:
            return None
        key = object_key(segment, kind.value)
        data = await self._store.get_range(key, 0, facts.size_bytes + 1)
        if len(data) != facts.size_bytes:
            raise SegmentCorruptError(key, f"{len(data)} bytes or more", f"{facts.size_bytes} bytes")
        if (crc := await self._runtime.offload(crc32c, data)) != facts.crc32c:
            raise SegmentCorruptError(key, f"CRC32C {crc:08x}", f"{facts.crc32c:08x}")
        return bytes(data)

    async def delete(self, segment: RemoteSegment | SegmentName) -> None:
        """Delete all objects of a segment. They may be absent, so it may be tried again after a failure.

        The manifest goes first: whatever a crash leaves behind is garbage, and never a segment with a hole.
        """
        self._manifests.pop(segment.segment_id, None)
        for suffix in (MANIFEST, *(kind.value for kind in SegmentFile)):
            await self._store.delete(object_key(segment, suffix))

    async def list_segments(self, prefix: str = "") -> AsyncIterator[StoredSegment]:
        """Yields all segments whose keys begin with ``prefix`` (``partition_prefix``), by partition and first offset,
        whole or not. Objects that are no part of a segment are left out: they belong to somebody else."""
        name: SegmentName | None = None
        objects: dict[str, ObjectInfo] = {}
        async for info in self._store.list(prefix):
            parsed = parse_key(info.key)
            if parsed is None:
                continue
            if name is not None and parsed[0] != name:
                yield StoredSegment(name, objects)
                objects = {}
            name = parsed[0]
            objects[parsed[1]] = info
        if name is not None:
            yield StoredSegment(name, objects)

    async def manifest_of(self, name: SegmentName) -> tuple[SegmentManifest, bytes]:
        """Returns the manifest of a listed segment, and the ``custom_metadata`` that its record should have: what a
        cluster is restored from. Raises as :meth:`manifest`."""
        return await self._read_manifest(object_key(name, MANIFEST), name)

    async def verify(self, segment: RemoteSegment) -> list[SegmentProblem]:
        """Read every byte of a segment and compare it with the manifest, and the manifest with the record. Returns what
        is wrong, by key.

        :raises StoreError: a request failed, so that nothing can be said
        """
        problems: list[SegmentProblem] = []
        try:
            manifest, _ = await self._read_manifest(object_key(segment, MANIFEST), segment)
        except SegmentCorruptError as error:
            return [SegmentProblem(error.key, error.found, error.written)]
        except ObjectNotFoundError:
            return [SegmentProblem(object_key(segment, MANIFEST), "nothing", "a manifest")]
        problems += _differences(segment, manifest)
        for suffix, facts in manifest.files.items():
            key = object_key(segment, suffix)
            try:
                info = await self._store.head(key)
                if info.size_bytes != facts.size_bytes:
                    raise SegmentCorruptError(key, f"{info.size_bytes} bytes", f"{facts.size_bytes} bytes")
                await check_bytes(self._runtime, self._store, key, facts)
            except SegmentCorruptError as error:
                problems.append(SegmentProblem(error.key, error.found, error.written))
            except ObjectNotFoundError:
                problems.append(SegmentProblem(key, "nothing", f"{facts.size_bytes} bytes"))
        return sorted(problems)


def _differences(segment: RemoteSegment, manifest: SegmentManifest) -> list[SegmentProblem]:
    """The facts in which the record and the manifest differ."""
    key = object_key(segment, MANIFEST)
    log = manifest.files[SegmentFile.LOG.value]
    epochs = tuple((entry.epoch, entry.start_offset) for entry in segment.leader_epochs)
    return [
        SegmentProblem(key, f"{name} {actual}", f"{written}, says the record")
        for name, actual, written in (
            ("end_offset", manifest.end_offset, segment.end_offset),
            ("max_timestamp_ms", manifest.max_timestamp_ms, segment.max_timestamp_ms),
            ("size_bytes", log.size_bytes, segment.size_bytes),
            ("leader_epochs", manifest.leader_epochs, epochs),
        )
        if actual != written
    ]


def _check_data(key: str, manifest: SegmentManifest, log_bytes: int, start: int, data: ObjectBytes) -> None:
    view = memoryview(data)
    _check_chunks(
        key, manifest, log_bytes, start, len(data), lambda at, size: view[at - start : at - start + size]
    )


def _check_in_place(files: Files, key: str, manifest: SegmentManifest, piece: FilePiece) -> FilePiece:
    try:
        modified_ms = files.modified_ms(piece.path)
        file = files.open(piece.path, write=False)
        try:
            if (found := file.size()) != piece.file_bytes:
                raise SegmentCorruptError(key, f"{found} bytes", f"{piece.file_bytes} bytes")
            file.read_ahead(piece.start, piece.size_bytes)
            _check_chunks(
                key,
                manifest,
                piece.file_bytes,
                piece.start,
                piece.size_bytes,
                lambda at, size: file.pread(size, at),
            )
        finally:
            file.close()
    except FileNotFoundError:
        raise ObjectNotFoundError(f"{key}: no file {piece.path}") from None
    except OSError as error:
        raise StoreUnavailableError(f"{key}: {error.strerror} ({piece.path})") from None
    return piece._replace(modified_ms=modified_ms)


def _check_chunks(
    key: str,
    manifest: SegmentManifest,
    log_bytes: int,
    start: int,
    size: int,
    read: Callable[[int, int], ObjectBytes],
) -> None:
    """Compare every chunk that lies whole in the range.

    :param read: returns so many bytes of the log from a position on
    :raises SegmentCorruptError: one has another checksum than the manifest says
    """
    chunk_bytes, end = manifest.chunk_bytes, start + size
    for nth in range(-(-start // chunk_bytes), -(-end // chunk_bytes)):
        begin = nth * chunk_bytes
        stop = min(begin + chunk_bytes, log_bytes)
        if stop <= end and crc32c(read(begin, stop - begin)) != manifest.chunk_crc(nth):
            raise SegmentCorruptError(key, f"another checksum of the chunk at byte {begin}", "the manifest's")
