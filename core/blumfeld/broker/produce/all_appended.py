"""The answer to a Produce request none of whose batches was refused: nearly every answer to a request over several
partitions.

It is written with one ``struct`` call for each partition, where the generated encoder looks at each field. A test holds
that both give the same bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from operator import attrgetter

from blumfeld.broker.produce.straight import FLEXIBLE_FROM, TOPIC_ID_FROM
from blumfeld.spi.parts import Part
from blumfeld.wire.messages.produce import ProduceResponse
from blumfeld.wire.primitives import put_uvarint

_LOG_START_FROM = 5
_RECORD_ERRORS_FROM = 8
_NO_TAGS = b"\x00"
_FIELDS = attrgetter("index", "error_code", "base_offset", "log_append_time_ms", "log_start_offset")


class AllAppended(ProduceResponse):
    """An answer without an error. The codec asks :meth:`own_encoder` for the function that writes it."""

    @staticmethod
    def own_encoder(version: int) -> Callable[[AllAppended, list[bytes], list[Part]], None]:
        """Returns the function that writes an answer in this version."""
        return _flexible_encoder(version) if version >= FLEXIBLE_FROM else _old_encoder(version)


def _flexible_encoder(version: int) -> Callable[[AllAppended, list[bytes], list[Part]], None]:
    # No record errors, no message, no tags.
    pack = struct.Struct(">ihqqqBBB").pack

    def encode(message: AllAppended, out: list[bytes], parts: list[Part]) -> None:
        out.append(put_uvarint(len(message.responses) + 1))
        for topic in message.responses:
            if version >= TOPIC_ID_FROM:
                out.append(topic.topic_id)
            else:
                name = topic.name.encode()
                out.append(put_uvarint(len(name) + 1) + name)
            out.append(put_uvarint(len(topic.partition_responses) + 1))
            out += [pack(*_FIELDS(partition), 1, 0, 0) for partition in topic.partition_responses]
            out.append(_NO_TAGS)
        out.append(message.throttle_time_ms.to_bytes(4, "big") + _NO_TAGS)

    return encode


def _old_encoder(version: int) -> Callable[[AllAppended, list[bytes], list[Part]], None]:
    # The log start offset comes last, so the versions without it leave out the last field.
    fields, layout = (5, ">ihqqq") if version >= _LOG_START_FROM else (4, ">ihqq")
    pack = struct.Struct(layout).pack
    no_errors = b"\x00\x00\x00\x00\xff\xff" if version >= _RECORD_ERRORS_FROM else b""

    def encode(message: AllAppended, out: list[bytes], parts: list[Part]) -> None:
        out.append(len(message.responses).to_bytes(4, "big"))
        for topic in message.responses:
            name = topic.name.encode()
            out.append(len(name).to_bytes(2, "big") + name)
            out.append(len(topic.partition_responses).to_bytes(4, "big"))
            out += [pack(*_FIELDS(partition)[:fields]) + no_errors for partition in topic.partition_responses]
        out.append(message.throttle_time_ms.to_bytes(4, "big"))

    return encode
