"""Every message in every version: against Kafka's own bytes, there and back, both codecs, bytes gone bad."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from blumfeld.wire import codec, interpreted_codec
from blumfeld.wire.api import API_BY_KEY, message_class, message_names, request_class
from blumfeld.wire.json_form import from_json, to_json
from blumfeld.wire.primitives import DecodeError
from blumfeld.wire.schema import AnyStruct, Message, fields_of
from tests.everyday import examples, first
from tests.kafka_facts import golden_messages, zookeeper_golden_messages
from tests.wire.schema_strategies import every_version, full, messages


def agrees(name: str, version: int, data: bytes, value: dict[str, Any]) -> None:
    """Bytes, message and JSON form say the same, by both codecs."""
    cls = message_class(name)
    message = codec.decode(cls, data, version)
    assert interpreted_codec.decode(cls, data, version) == message
    assert codec.encode(message, version) == data
    assert interpreted_codec.encode(message, version) == data
    written = to_json(message, version)
    assert written == value
    assert list(written) == list(value)
    assert from_json(cls, version, value) == message


def test_reads_and_writes_kafkas_bytes_of_every_message_and_version() -> None:
    """What Kafka's own serializers made, in two fillings each."""
    seen = set()
    for golden in (*golden_messages(), *zookeeper_golden_messages()):
        agrees(golden["message"], golden["version"], bytes.fromhex(golden["hex"]), golden["json"])
        seen.add((message_class(golden["message"]), golden["version"]))
    # Kafka Streams' own userdata is not among the golden bytes.
    left = {cls.__name__ for cls, _ in set(every_version()) - seen}
    assert left == {"SubscriptionInfoData"}


def ends(cls: type[Message]) -> list[int]:
    """The lowest and the highest version, and the first that is flexible."""
    valid, flexible = cls.meta.valid, cls.meta.flexible
    return [
        version
        for version in range(valid.first, valid.last + 1)
        if version in (valid.first, valid.last) or (version in flexible and version - 1 not in flexible)
    ]


@pytest.mark.parametrize("versions", first(1, ["ends", "all"]))
def test_every_message_comes_back_as_it_went(versions: str) -> None:
    """A message of values that the version knows is the same after encoding and decoding; the codecs agree.

    Every version reads and writes Kafka's own bytes above.
    """
    for name in message_names():
        cls = message_class(name)
        try:
            every = range(cls.meta.valid.first, cls.meta.valid.last + 1)
            check_round_trips(cls, ends(cls) if versions == "ends" else every)
        except Exception as error:
            error.add_note(name)
            raise
        finally:
            messages.cache_clear()


def check_round_trips(cls: type[Message], versions: Iterable[int]) -> None:
    """Fail unless drawn messages of each version come back as they went."""

    @settings(
        max_examples=examples(5, at_least=3),
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def round_trip(data: st.DataObject) -> None:
        for version in versions:
            message = data.draw(messages(cls, version))
            encoded = codec.encode(message, version)
            assert codec.decode(cls, encoded, version) == message
            assert interpreted_codec.encode(message, version) == encoded
            assert from_json(cls, version, to_json(message, version)) == message

    round_trip()


def outcome(decode: Any, cls: type[Message], data: bytes, version: int) -> str:
    """The decoded message as text (in which NaN equals NaN), or that the bytes were refused."""
    try:
        return repr(encodable(decode(cls, data, version)))
    except DecodeError:
        return "refused"


def encodable(value: Any) -> Any:
    """Views of memory do not compare by their text."""
    if isinstance(value, memoryview):
        return bytes(value)
    if isinstance(value, AnyStruct):
        return [encodable(getattr(value, f.name)) for f in fields_of(type(value))]
    return [encodable(v) for v in value] if isinstance(value, list) else value


@pytest.mark.parametrize("damages", first(1, [15, 40]))
def test_damaged_bytes_are_refused_by_one_error_and_both_codecs_agree(damages: int) -> None:
    """Every message cut short, with changed, missing and added bytes: DecodeError or a message, nothing else."""
    chance = random.Random(4)
    for cls, version in every_version():
        whole = codec.encode(full(cls, version), version)
        for _ in range(damages):
            data = bytearray(whole)
            at = chance.randrange(len(data) + 1)
            how = chance.randrange(4)
            if how == 0:
                del data[at:]
            elif how == 1:
                data[at : at + 1] = bytes((chance.choice((0, 1, 127, 128, 255, chance.randrange(256))),))
            elif how == 2:
                data[at : at + 4] = chance.choice((b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x0f", b"\x80" * 6))
            else:
                data[at:at] = chance.randbytes(chance.randrange(1, 4))
            verdict = outcome(codec.decode, cls, bytes(data), version)
            assert verdict == outcome(interpreted_codec.decode, cls, bytes(data), version), (
                cls,
                version,
                data.hex(),
            )


@pytest.mark.parametrize("bytes_max", first(1, [150, 400]))
def test_a_huge_length_anywhere_allocates_nothing_large(bytes_max: int) -> None:
    """Each position of each request takes the greatest length there is, in both forms."""
    cases = []
    for key, info in API_BY_KEY.items():
        cls, version = request_class(key), info.max_version
        whole = codec.encode(full(cls, version), version)
        decode = codec.decoder(cls, version)
        cases.append((decode, whole[:bytes_max]))
    tracemalloc.start()
    try:
        for decode, whole in cases:
            for at in range(len(whole)):
                for length in (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07"):
                    data = memoryview(whole[:at] + length + whole[at + 4 :])
                    try:
                        decode(data, 0)
                    except DecodeError:
                        continue
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_frame_full_of_empty_elements_is_refused() -> None:
    """A byte an element would make a list 8 times the frame: the limit on arrays holds before it is made."""
    cls = message_class("DeleteGroupsRequest")
    count = (1 << 20) + 1
    data = b"\x82\x80\x40" + b"\x01" * count + b"\x00"
    with pytest.raises(DecodeError, match="elements"):
        codec.decode(cls, data, 2)


def test_every_struct_of_an_array_takes_a_byte() -> None:
    """Else the count could not be bounded by what is left of the frame."""
    from blumfeld.wire.generation.source import min_size

    for cls, version in every_version():
        for struct in structs_in_arrays(cls, version):
            flexible = version in cls.meta.flexible
            assert flexible or any(version in f.versions for f in fields_of(struct)), (cls, struct)
            assert min_size(struct, version, flexible) >= 1


def structs_in_arrays(cls: type[AnyStruct], version: int) -> list[type[AnyStruct]]:
    """The structs that lie in arrays of this class in this version, at any depth."""
    structs: list[type[AnyStruct]] = []
    for field in fields_of(cls):
        if field.type.struct is not None and version in field.versions:
            if field.type.array:
                structs.append(field.type.struct)
            structs += structs_in_arrays(field.type.struct, version)
    return structs
