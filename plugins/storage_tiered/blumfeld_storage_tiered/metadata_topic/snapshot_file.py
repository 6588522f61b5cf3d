"""The file with the catalogs of one metadata partition: a start reads on where the last save was. Pure.

A file that can't be used costs a look at the whole topic, and nothing else.
"""

from __future__ import annotations

import struct

from crc32c import crc32c

from blumfeld.spi.completion import Steps
from blumfeld.spi.runtime import Files
from blumfeld.wire.primitives import DecodeError
from blumfeld_storage_tiered.catalog.catalog import RemoteLogCatalog
from blumfeld_storage_tiered.metadata_topic.metadata_partition import LastBatch, MetadataPartition, key_of

BYTES_MAX = 256 << 20
"""The largest file that is written: 10⁵ segments take 8 MB."""
_HEADER = struct.Struct(">4sH16siqqiII")
"""Magic, version, id of the topic, partition, position; offset or -1, leader epoch and checksum of the last batch;
number of catalogs."""
_MAGIC, _VERSION = b"BRLM", 3
_NOTHING_READ = LastBatch(-1, -1, 0)
_U32 = struct.Struct(">I")


def file_name(index: int) -> str:
    """Returns the name of the file of a metadata partition."""
    return f"partition-{index}.snapshot"


def encode_snapshot(topic_id: bytes, partition: MetadataPartition) -> Steps[tuple[int, bytes]]:
    """The file without its checksum, in steps, with its position.

    Records may be read between two steps. The position is that of the first one, and to apply a record again changes
    nothing or is refused, so a catalog may be ahead of it.
    """
    position, catalogs = partition.position, list(partition.catalogs.values())
    last_batch = partition.last_batch or _NOTHING_READ
    head = _HEADER.pack(_MAGIC, _VERSION, topic_id, partition.index, position, *last_batch, len(catalogs))
    out = bytearray(head)
    for catalog in catalogs:
        data = yield from catalog.snapshot()
        out += _U32.pack(len(data)) + data
        yield None
    return position, bytes(out)


def write_snapshot(files: Files, path: str, data: bytes) -> None:
    """Write a file with its checksum. For a worker: it blocks. Raises ``OSError``."""
    files.write_atomically(path, data + _U32.pack(crc32c(data)))


def read_snapshot(files: Files, path: str) -> bytes:
    """Read a file, and check its checksum. For a worker: it blocks.

    :raises OSError: it can't be read
    :raises DecodeError: it is damaged
    """
    data = files.read_bytes(path)
    if len(data) < _HEADER.size + _U32.size or _U32.unpack(data[-4:])[0] != crc32c(data[:-4]):
        raise DecodeError("the snapshot of remote log metadata is damaged")
    return data[:-4]


def restore_snapshot(topic_id: bytes, data: bytes, partition: MetadataPartition) -> Steps[None]:
    """Fill an empty partition from a file, in steps.

    :raises DecodeError: the file is that of another topic or partition
    """
    magic, version, of_topic, index, position, *last, count = _HEADER.unpack_from(data)
    if (magic, version, of_topic, index) != (_MAGIC, _VERSION, topic_id, partition.index):
        raise DecodeError("the snapshot is that of another topic, or of another version of this program")
    catalogs, at = [], _HEADER.size
    for _ in range(count):
        (size,) = _U32.unpack_from(data, at)
        at += _U32.size + size
        catalogs.append((yield from RemoteLogCatalog.restore(data[at - size : at])))
    partition.catalogs.update((key_of(catalog.partition), catalog) for catalog in catalogs)
    partition.position = partition.saved_position = position
    last_batch = LastBatch(*last)
    partition.last_batch = None if last_batch == _NOTHING_READ else last_batch
