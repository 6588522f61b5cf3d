"""The small text files of a log directory, encoded and decoded (Kafka's ``CheckpointFile``).

Pure: the caller reads the files, and writes them atomically. Any fault in such a file is a
:class:`MalformedFile`, whose message names the file and the line.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec

from blumfeld.spi.storage import TopicPartition
from blumfeld.wire.primitives import uuid_bytes, uuid_text

T = TypeVar("T")

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
PARTITION_METADATA = "partition.metadata"
META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
LAST_CLEAN_SHUTDOWN = ".last_cleanshutdown"
"""The place of the clean-shutdown file while a process runs, until that process opens a log of the broker's."""
LOCK = ".lock"

NO_BROKER_EPOCH = -1
_VERSION = 0


class MalformedFile(ValueError):  # noqa: N818 - the noun says what it is
    """A text file that can't be read. The message names the file, the line, and what is expected there."""

    def __init__(self, source: str, problem: str) -> None:
        super().__init__(f"{source}: {problem}")
        self.source = source


def encode_lines(lines: Iterable[str]) -> bytes:
    """Returns a checkpoint file: its version, the number of entries, then one entry a line."""
    entries = list(lines)
    return "".join(f"{line}\n" for line in [str(_VERSION), str(len(entries)), *entries]).encode()


def decode_lines(data: bytes, source: str, expected: str, parse: Callable[[str], T]) -> list[T]:
    """Decode a checkpoint file. An empty file has no entries: Kafka leaves some empty.

    :param expected: what an entry is, for the message: ``"a topic, a partition and an offset"``
    :param parse: returns the value of an entry's line; raises ``ValueError`` if the line is malformed
    :raises MalformedFile: wrong version, wrong number of entries, or an entry that ``parse`` refuses
    """
    lines = _text(data, source).splitlines()
    if not lines:
        return []
    if len(lines) < 2:
        raise MalformedFile(source, "a version and a number of entries should stand in the first two lines")
    if lines[0].strip() != str(_VERSION):
        raise MalformedFile(source, f"line 1: unknown version {lines[0][:20]!r}: only 0 is allowed")
    if not lines[1].isascii() or not lines[1].isdigit():
        raise MalformedFile(source, f"line 2: {lines[1][:20]!r} should be the number of entries")
    entries = lines[2:]
    if len(entries) != int(lines[1]):
        raise MalformedFile(source, f"{len(entries)} entries, where line 2 says {int(lines[1])}")
    values = []
    for number, line in enumerate(entries, start=3):
        try:
            values.append(parse(line))
        except ValueError:
            raise MalformedFile(source, f"line {number}: {line[:80]!r} should be {expected}") from None
    return values


def encode_offsets(offsets: Iterable[tuple[TopicPartition, int]]) -> bytes:
    """Returns an offset checkpoint: recovery points, log starts, high watermarks or first dirty offsets."""
    return encode_lines(f"{at.topic} {at.partition} {offset}" for at, offset in offsets)


def decode_offsets(data: bytes, source: str) -> dict[TopicPartition, int]:
    """Decode an offset checkpoint, in the file's order.

    :raises MalformedFile: the bytes are not an offset checkpoint
    """
    return dict(decode_lines(data, source, "a topic, a partition and an offset", _parse_offset))


def _parse_offset(line: str) -> tuple[TopicPartition, int]:
    topic, partition, offset = line.split(" ")
    if not topic or int(partition) < 0:
        raise ValueError(line)
    return TopicPartition(topic, int(partition)), int(offset)


def encode_partition_metadata(topic_id: bytes) -> bytes:
    """Returns a ``partition.metadata`` file, which names the topic id of the directory's log."""
    return f"version: 0\ntopic_id: {uuid_text(topic_id)}".encode()


def decode_partition_metadata(data: bytes, source: str = PARTITION_METADATA) -> bytes:
    """Returns the topic id in a ``partition.metadata`` file.

    :raises MalformedFile: the bytes are not such a file, or the id is the zero id
    """
    fields = {}
    for number, line in enumerate(_text(data, source).splitlines(), start=1):
        name, separator, value = line.partition(": ")
        if not separator:
            raise MalformedFile(source, f"line {number}: {line[:80]!r} should be 'name: value'")
        fields[name] = value.strip()
    if fields.get("version") != "0":
        raise MalformedFile(source, f"unknown version {fields.get('version')!r}: only 0 is allowed")
    try:
        topic_id = uuid_of(fields.get("topic_id", ""))
    except ValueError as error:
        raise MalformedFile(source, f"topic_id: {error}") from None
    if topic_id == bytes(16):
        raise MalformedFile(source, "topic_id: the zero id is no topic's")
    return topic_id


class MetaProperties(msgspec.Struct, frozen=True, kw_only=True):
    """Content of ``meta.properties``: the cluster and node that a log directory belongs to."""

    cluster_id: str
    node_id: int
    directory_id: bytes
    """16 zero bytes: none yet; a broker of Kafka with a ZooKeeper gives none."""
    of_zookeeper: bool = False
    """Version 0, which a broker of Kafka with a ZooKeeper writes."""


def encode_meta_properties(meta: MetaProperties) -> bytes:
    """Returns the file, without the comment and date that Java writes at the top."""
    lines = {
        "cluster.id": meta.cluster_id,
        "directory.id": uuid_text(meta.directory_id),
        "broker.id" if meta.of_zookeeper else "node.id": str(meta.node_id),
        "version": "0" if meta.of_zookeeper else "1",
    }
    return "".join(f"{name}={_escape(value)}\n" for name, value in lines.items()).encode()


def decode_meta_properties(
    data: bytes, source: str = META_PROPERTIES, *, zookeeper: bool = False
) -> MetaProperties:
    """Decode a ``meta.properties`` of version 1, Kafka's or ours. Unknown keys are skipped.

    :param zookeeper: whether version 0 is taken, too
    :raises MalformedFile: another version, or a key is missing or has a malformed value
    """
    fields = decode_properties(data, source)
    version = fields.get("version", "0")
    of_zookeeper = zookeeper and version == "0"
    if version != "1" and not of_zookeeper:
        raise MalformedFile(
            source, f"version {version!r}, where 1 should stand (0 is of Kafka with ZooKeeper)"
        )
    node = "broker.id" if of_zookeeper else "node.id"
    if of_zookeeper:
        fields.setdefault("directory.id", uuid_text(bytes(16)))
    for name in ("cluster.id", node, "directory.id"):
        if not fields.get(name):
            raise MalformedFile(source, f"{name} is missing")
    try:
        node_id, directory_id = int(fields[node]), uuid_of(fields["directory.id"])
    except ValueError as error:
        raise MalformedFile(source, f"{node} or directory.id: {error}") from None
    return MetaProperties(
        cluster_id=fields["cluster.id"],
        node_id=node_id,
        directory_id=directory_id,
        of_zookeeper=of_zookeeper,
    )


def decode_properties(data: bytes, source: str) -> dict[str, str]:
    """Decode a Java properties file as far as Kafka uses them: ``name=value`` lines, ``#`` comments, backslash
    escapes.

    :raises MalformedFile: the bytes are not UTF-8, or a line has no name
    """
    fields = {}
    for number, line in enumerate(_text(data, source).splitlines(), start=1):
        line = line.strip()
        if not line or line[0] in "#!":
            continue
        at = next((i for i, c in enumerate(line) if c in "=:" and line[i - 1 : i] != "\\"), len(line))
        name = line[:at].strip()
        if not name:
            raise MalformedFile(source, f"line {number}: {line[:80]!r} has no name")
        fields[_unescape(name)] = _unescape(line[at + 1 :].strip())
    return fields


def encode_clean_shutdown(broker_epoch: int) -> bytes:
    """Returns ``.kafka_cleanshutdown``: the broker of this epoch closed all its logs (KIP-966)."""
    return b'{"version":0,"brokerEpoch":%d}' % broker_epoch


def decode_clean_shutdown(data: bytes) -> int:
    """Returns the broker epoch in the file, or -1. The file's existence says "clean"; older Kafkas write it empty."""
    try:
        fields = json.loads(data)
    except ValueError:
        return NO_BROKER_EPOCH
    epoch = fields.get("brokerEpoch") if isinstance(fields, dict) else None
    return epoch if isinstance(epoch, int) else NO_BROKER_EPOCH


def uuid_of(text: str) -> bytes:
    """Returns the uuid that 22 base64 characters stand for.

    :raises ValueError: wrong length or characters; unlike base64 decoders this skips none
    """
    uuid = uuid_bytes(text)
    if uuid_text(uuid) != text:
        raise ValueError(f"{text!r} is not an id")
    return uuid


def _text(data: bytes, source: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise MalformedFile(source, f"not UTF-8 at byte {error.start}") from None


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace("=", "\\=").replace(":", "\\:")


def _unescape(value: str) -> str:
    if "\\" not in value:
        return value
    out, escaped = [], False
    for character in value:
        if character == "\\" and not escaped:
            escaped = True
            continue
        out.append({"t": "\t", "n": "\n", "r": "\r"}.get(character, character) if escaped else character)
        escaped = False
    return "".join(out)
