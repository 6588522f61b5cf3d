"""The manifest of a segment: a JSON object beside its files, written last. What has no manifest is garbage.

It has all that the segment's record in ``__remote_log_metadata`` has, and a checksum of every byte. So a store can be
verified, and a cluster restored, from the objects alone. ``custom_metadata`` of the record holds the manifest's
checksum: each vouches for the other.
"""

from __future__ import annotations

import struct

import msgspec
from crc32c import crc32c

from blumfeld.spi.leader_epochs import EpochEntry
from blumfeld.spi.object_store import ObjectBytes, StoreError
from blumfeld.wire.primitives import uuid_bytes, uuid_text
from blumfeld_storage_tiered.catalog.segment import RemoteSegment, TopicIdPartition
from blumfeld_storage_tiered.objects.names import SegmentFile

VERSION = 1
CHUNK_BYTES = 1 << 20
"""Bytes of the log that one checksum covers: a ranged read is checked without the rest of the log."""

_CUSTOM_METADATA = struct.Struct(">BI")
_CHUNK_CRC = struct.Struct(">I")


class SegmentCorruptError(StoreError):
    """An object isn't what was written: its size, a checksum or its content is wrong. It is read in vain until somebody
    puts back what was written."""

    retriable = False

    def __init__(self, key: str, found: str, written: str) -> None:
        super().__init__(f"{key}: found {found}; written was {written}")
        self.key = key
        self.found = found
        self.written = written


class FileFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The size and the CRC32C of one file."""

    size_bytes: int
    crc32c: int


class SegmentManifest(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about a whole segment. A later version may add fields; it changes the meaning of none."""

    version: int = VERSION
    cluster_id: str
    topic: str
    topic_id: str
    """In Kafka's text form, as ``segment_id``."""
    partition: int
    segment_id: str
    start_offset: int
    end_offset: int
    """The last offset, not the one behind it."""
    max_timestamp_ms: int
    leader_epochs: tuple[tuple[int, int], ...]
    """(epoch, its first offset in the segment), oldest first."""
    files: dict[str, FileFacts]
    """By the suffix of the object's name."""
    chunk_bytes: int
    chunk_crcs: bytes
    """The CRC32C of every chunk of the log, 4 bytes each in network order. The last chunk may be shorter."""

    def facts(self, kind: SegmentFile) -> FileFacts | None:
        """Returns the facts about a file, ``None`` if the segment has none of this kind."""
        return self.files.get(kind.value)

    def chunk_crc(self, nth: int) -> int:
        """Returns the checksum of the log's chunk ``nth``, from 0."""
        (crc,) = _CHUNK_CRC.unpack_from(self.chunk_crcs, nth * _CHUNK_CRC.size)
        return int(crc)

    def segment(self, broker_id: int, event_timestamp_ms: int, custom_metadata: bytes) -> RemoteSegment:
        """Returns the segment as its record has it: what a restored cluster knows of it."""
        return RemoteSegment(
            partition=TopicIdPartition(uuid_bytes(self.topic_id), self.partition, self.topic),
            segment_id=uuid_bytes(self.segment_id),
            start_offset=self.start_offset,
            end_offset=self.end_offset,
            broker_id=broker_id,
            max_timestamp_ms=self.max_timestamp_ms,
            event_timestamp_ms=event_timestamp_ms,
            leader_epochs=tuple(EpochEntry(*entry) for entry in self.leader_epochs),
            size_bytes=self.files[SegmentFile.LOG.value].size_bytes,
            custom_metadata=custom_metadata,
            txn_index_empty=SegmentFile.TRANSACTION_INDEX.value not in self.files,
        )


_encoder = msgspec.json.Encoder(order="deterministic")
_decoder = msgspec.json.Decoder(SegmentManifest)


def manifest_of(
    segment: RemoteSegment, cluster_id: str, files: dict[str, FileFacts], chunk_bytes: int, chunk_crcs: bytes
) -> SegmentManifest:
    """Returns the manifest of a segment that was uploaded."""
    return SegmentManifest(
        cluster_id=cluster_id,
        topic=segment.partition.topic,
        topic_id=uuid_text(segment.partition.topic_id),
        partition=segment.partition.partition,
        segment_id=uuid_text(segment.segment_id),
        start_offset=segment.start_offset,
        end_offset=segment.end_offset,
        max_timestamp_ms=segment.max_timestamp_ms,
        leader_epochs=tuple((entry.epoch, entry.start_offset) for entry in segment.leader_epochs),
        files=files,
        chunk_bytes=chunk_bytes,
        chunk_crcs=chunk_crcs,
    )


def encode_manifest(manifest: SegmentManifest) -> bytes:
    """Returns the bytes of the object; the same manifest gives the same bytes."""
    return _encoder.encode(manifest)


def decode_manifest(key: str, data: ObjectBytes) -> SegmentManifest:
    """Returns the manifest in an object.

    :raises SegmentCorruptError: it is no manifest, or one whose parts don't fit together
    """
    try:
        manifest = _decoder.decode(data)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise SegmentCorruptError(key, f"no manifest ({error})", "a manifest") from None
    log = manifest.facts(SegmentFile.LOG)
    if manifest.version != VERSION:
        raise SegmentCorruptError(key, f"version {manifest.version}", f"a version that we know: {VERSION}")
    if log is None or manifest.chunk_bytes <= 0:
        raise SegmentCorruptError(key, "a manifest without log or chunks", "both")
    chunks, rest = divmod(len(manifest.chunk_crcs), _CHUNK_CRC.size)
    if rest or chunks != -(-log.size_bytes // manifest.chunk_bytes):
        raise SegmentCorruptError(
            key, f"{chunks} checksums of chunks", f"one for each of {log.size_bytes} bytes"
        )
    return manifest


def custom_metadata_of(manifest: ObjectBytes) -> bytes:
    """Returns the record's ``custom_metadata`` for a manifest: a version and the manifest's CRC32C, 5 bytes."""
    return _CUSTOM_METADATA.pack(VERSION, crc32c(manifest))


def crcs_of_chunks(crcs: list[int]) -> bytes:
    """Returns ``SegmentManifest.chunk_crcs`` for the checksums of all chunks in order."""
    return b"".join(map(_CHUNK_CRC.pack, crcs))
