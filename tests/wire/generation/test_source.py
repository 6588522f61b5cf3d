"""The codec in steps: the same messages, bytes and errors as the plain one, with a bound on each step."""

from __future__ import annotations

import random
from collections.abc import Generator
from typing import Any, TypeVar

import pytest

from blumfeld.wire import codec
from blumfeld.wire.generation.source import STEP_ELEMENTS, STEP_NUMBERS, STEP_PIECES
from blumfeld.wire.messages.fetch import FetchResponse
from blumfeld.wire.messages.find_coordinator import FindCoordinatorRequest
from blumfeld.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from blumfeld.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from blumfeld.wire.primitives import DecodeError, EncodeError
from blumfeld.wire.schema import Message
from tests.wire.schema_strategies import every_version, full
from tests.wire.test_messages import outcome

T = TypeVar("T")


def ended(steps: Generator[None, None, T]) -> tuple[T, int]:
    """The result, and the number of yields."""
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, count
        count += 1


def decode_in_steps(cls: type[Message], data: bytes, version: int) -> Message:
    (message, end), _ = ended(codec.step_decoder(cls, version)(memoryview(data), 0))
    if end != len(data):
        raise DecodeError("bytes too many")
    return message


def repeated(value: Any, times: int) -> Any:
    """The message with its arrays so many times as long."""
    for name in value.__struct_fields__:
        elements = getattr(value, name)
        if isinstance(elements, list) and elements:
            setattr(value, name, elements * times)
    return value


def test_every_message_and_version_is_read_and_written_the_same() -> None:
    for cls, version in every_version():
        message = repeated(full(cls, version), 50)
        data = codec.encode(message, version)
        assert codec.decode(cls, data, version) == message
        assert decode_in_steps(cls, data, version) == message, (cls, version)
        parts, _ = ended(codec.encode_parts_in_steps(message, version, b"prefix"))
        assert b"".join(parts) == b"prefix" + data, (cls, version)  # type: ignore[arg-type]


def test_damaged_bytes_have_the_same_outcome() -> None:
    chance = random.Random(5)
    for cls, version in every_version():
        whole = codec.encode(full(cls, version), version)
        for _ in range(8):
            data = bytearray(whole)
            at = chance.randrange(len(data) + 1)
            if chance.randrange(2):
                del data[at:]
            else:
                data[at : at + 2] = chance.choice((b"\x7f\xff", b"\xff\xff", b"\x80\x80", b"\0\0"))
            expected = outcome(codec.decode, cls, bytes(data), version)
            assert outcome(decode_in_steps, cls, bytes(data), version) == expected, (cls, version, data.hex())


@pytest.mark.parametrize("nested", [False, True])
def test_a_step_is_bounded_whichever_array_is_long(nested: bool) -> None:
    partitions = [OffsetCommitRequestPartition(partition_index=i) for i in range(1 if not nested else 10_000)]
    topics = [OffsetCommitRequestTopic(name="t", partitions=partitions)] * (10_000 if not nested else 1)
    request = OffsetCommitRequest(group_id="g", topics=topics)
    data = codec.encode(request, 8)
    _, reads = ended(codec.step_decoder(OffsetCommitRequest, 8)(memoryview(data), 0))
    _, writes = ended(codec.encode_parts_in_steps(request, 8))
    assert min(reads, writes) >= 10_000 // (STEP_ELEMENTS + 1)


def test_numbers_are_read_a_block_at_a_time() -> None:
    numbers = list(range(100_000))
    request = OffsetFetchRequest(
        group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=numbers)]
    )
    data = codec.encode(request, 1)
    (message, _), reads = ended(codec.step_decoder(OffsetFetchRequest, 1)(memoryview(data), 0))
    assert message == request
    assert reads >= len(numbers) // STEP_NUMBERS


def test_a_long_answer_is_joined_on_the_way() -> None:
    """Else the join at the end would be one step with all the pieces."""
    request = FindCoordinatorRequest(coordinator_keys=[f"group-{i}" for i in range(20_000)])
    parts, _ = ended(codec.encode_parts_in_steps(request, 6))
    assert len(parts) > 5
    assert b"".join(parts) == codec.encode(request, 6)  # type: ignore[arg-type]
    assert max(len(part) for part in parts) < 20 * (STEP_PIECES + 2 * STEP_ELEMENTS)  # type: ignore[arg-type]


def test_errors_are_those_of_the_plain_codec() -> None:
    with pytest.raises(DecodeError, match="versions"):
        codec.step_decoder(OffsetFetchRequest, 99)
    wrong = OffsetCommitRequest(group_id=None, topics=[])  # type: ignore[arg-type]
    with pytest.raises(EncodeError, match="group_id"):
        ended(codec.encode_parts_in_steps(wrong, 8))
    with pytest.raises(EncodeError, match="versions"):
        ended(codec.encode_parts_in_steps(FetchResponse(), 99))
