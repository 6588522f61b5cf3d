"""Produce requests of one batch, read and answered as bytes: the shape that nearly every client sends.

The general way decodes a request with the generated decoder. This module knows only the byte layout of a request
with one topic and one partition. It returns ``None`` for any other request, and the general way then serves or
refuses it. A parity test holds both ways to the same answers.
"""

from __future__ import annotations

import struct

_OLD_START = struct.Struct(">hhiih")
"""Length of the transactional id, acks, timeout, number of topics, length of the topic's name."""
_NEW_START = struct.Struct(">BhiBB")
"""The same fields with compact lengths: each length or count is encoded as itself plus one."""
_NEW_START_BYTES = _NEW_START.size
_TWO_I32 = struct.Struct(">ii")
_COUNT_AND_INDEX = struct.Struct(">Bi")
_I32 = struct.Struct(">i")
_unpack_i16 = struct.Struct(">h").unpack_from
_unpack_i32 = _I32.unpack_from

FLEXIBLE_FROM = 9
TOPIC_ID_FROM = 13
UUID_BYTES = 16
NAME_BYTES_MAX = 126
"""Longest topic name whose compact length takes one byte. The general way serves longer names."""


class OneBatch:
    """The meaning of a request's prefix (all bytes up to and with the partition index), and its answer's layout.

    A client sends the same prefix with each request to the same partition, so one object per prefix is made and
    reused.
    """

    __slots__ = ("acks", "after_records", "answer", "before_base", "index", "timeout_ms", "topic")

    def __init__(self, version: int, acks: int, timeout_ms: int, topic: bytes, index: int) -> None:
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.topic = topic
        """The topic's name in UTF-8, or its 16-byte id from v13 on."""
        self.index = index
        if version >= FLEXIBLE_FROM:
            name = topic if version >= TOPIC_ID_FROM else bytes((len(topic) + 1,)) + topic
            self.before_base = b"\x00\x02" + name + b"\x02" + _I32.pack(index)
            # No record errors, no message, tags of partition and topic; throttle time and tags of the answer.
            self.after_records = b"\x01\x00\x00\x00" + bytes(4) + b"\x00"
        else:
            self.before_base = _I32.pack(1) + len(topic).to_bytes(2, "big") + topic + _TWO_I32.pack(1, index)
            self.after_records = (b"\x00\x00\x00\x00\xff\xff" if version >= 8 else b"") + bytes(4)
        start = f"{len(self.before_base)}s"
        offsets = "hqqq" if version >= 5 else "hqq"
        self.answer = struct.Struct(f">i{start}{offsets}{len(self.after_records)}s")

    def response(
        self, correlation_id: int, code: int, base_offset: int, append_ms: int, log_start_offset: int
    ) -> bytes:
        """Returns the whole answer, with the response header and without the frame's size."""
        return self.answer.pack(
            correlation_id,
            self.before_base,
            code,
            base_offset,
            append_ms,
            log_start_offset,
            self.after_records,
        )

    def response_v3(
        self, correlation_id: int, code: int, base_offset: int, append_ms: int, _log_start_offset: int
    ) -> bytes:
        """Returns the same answer for versions 3 and 4, which have no log start offset."""
        return self.answer.pack(
            correlation_id, self.before_base, code, base_offset, append_ms, self.after_records
        )


class FrameShape:
    """Byte layout of a Produce request of one version with one partition.

    A prefix is that of a request without a transactional id, unless the name says otherwise.
    """

    def __init__(self, version: int) -> None:
        self.version = version
        self.flexible = version >= FLEXIBLE_FROM
        self.topic_ids = version >= TOPIC_ID_FROM
        if self.topic_ids:
            self.prefix_bytes, self.name_length_at = _NEW_START_BYTES - 1 + UUID_BYTES + 5, 0
        elif self.flexible:
            self.prefix_bytes, self.name_length_at = _NEW_START_BYTES + 4, _NEW_START_BYTES - 1
        else:
            self.prefix_bytes, self.name_length_at = _OLD_START.size + 8, _OLD_START.size - 1
        """The prefix is ``prefix_bytes`` long, plus the value of its byte at ``name_length_at``. With topic ids that
        byte is the length of the transactional id, which is 0 in this shape. One byte is enough for the older
        versions, too: a name has at most 249 characters, and ``parse_prefix`` refuses any prefix that doesn't fit."""

    def transactional_id_bytes(self, frame: memoryview, position: int) -> int:
        """Returns the length of the transactional id of the request whose body begins at ``position``: 0 if it is
        empty, -1 if there is none, or one of more than 126 bytes.

        :raises IndexError: the frame is cut off
        :raises struct.error: the same
        """
        if not self.flexible:
            return int(_unpack_i16(frame, position)[0])
        length = frame[position] - 1
        return length if length <= NAME_BYTES_MAX else -1

    def prefix_end(self, frame: memoryview, start: int) -> int:
        """Returns the end of the prefix of a request with a transactional id.

        :param start: where the prefix would begin without the id: so many bytes later than it does
        :raises IndexError: the frame is cut off
        """
        # With topic ids the byte at ``name_length_at`` is the id's last one here.
        name = 0 if self.topic_ids else frame[start + self.name_length_at]
        return start + self.prefix_bytes + name

    def without_id(self, prefix: bytes, id_bytes: int) -> bytes:
        """Returns the prefix of the same request without its transactional id."""
        if self.flexible:
            return b"\x00" + prefix[1 + id_bytes :]
        return b"\xff\xff" + prefix[2 + id_bytes :]

    def parse_prefix(self, prefix: bytes) -> OneBatch | None:
        """Returns the meaning of the prefix, or ``None`` if the request has another shape."""
        try:
            return self._parse_flexible(prefix) if self.flexible else self._parse_old(prefix)
        except (struct.error, IndexError):
            return None

    def _parse_old(self, prefix: bytes) -> OneBatch | None:
        id_length, acks, timeout_ms, topics, name_length = _OLD_START.unpack_from(prefix)
        if id_length != -1 or topics != 1 or name_length < 0 or len(prefix) != 22 + name_length:
            return None
        partitions, index = _TWO_I32.unpack_from(prefix, 14 + name_length)
        if partitions != 1:
            return None
        return OneBatch(self.version, acks, timeout_ms, prefix[14 : 14 + name_length], index)

    def _parse_flexible(self, prefix: bytes) -> OneBatch | None:
        id_length, acks, timeout_ms, topics, name_length = _NEW_START.unpack_from(prefix)
        if id_length != 0 or topics != 2:
            return None
        start = _NEW_START_BYTES
        if self.topic_ids:
            start -= 1
            end = start + UUID_BYTES
        else:
            end = start + name_length - 1
            if not 1 <= name_length <= NAME_BYTES_MAX + 1:
                return None
        if len(prefix) != end + 5:
            return None
        partitions, index = _COUNT_AND_INDEX.unpack_from(prefix, end)
        return None if partitions != 2 else OneBatch(self.version, acks, timeout_ms, prefix[start:end], index)

    @staticmethod
    def old_records(frame: memoryview, position: int) -> int:
        """Returns the position of the first record batch; -1 if the records don't end with the frame.

        :param position: the end of the prefix
        :raises struct.error: the frame ends before the records' length does
        """
        at = position + 4
        return at if _unpack_i32(frame, position)[0] == len(frame) - at else -1

    @staticmethod
    def flexible_records(frame: memoryview, position: int) -> int:
        """The same for versions 9 and up; -1 also if tagged fields follow the records.

        :raises IndexError: the frame ends before the records' length does
        """
        end = len(frame)
        size = shift = 0
        while True:
            byte = frame[position]
            position += 1
            size |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 28:
                return -1
        # The last three bytes count the tagged fields of partition, topic and request. All must be 0.
        if size < 1 or position + size + 2 != end or frame[end - 3] or frame[end - 2] or frame[end - 1]:
            return -1
        return position
