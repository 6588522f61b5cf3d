"""Keys and values of committed offsets, written and read by hand: the same bytes as the general codec's."""

from __future__ import annotations

from random import Random

import pytest

from blumfeld.coordinator.groups.offset_values import (
    CommittedOffset,
    committed_of,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from blumfeld.coordinator.groups.offsets import OffsetStore, offset_record, tombstone
from blumfeld.coordinator.groups.records import record
from blumfeld.coordinator.runtime.record_runs import RecordRun
from blumfeld.spi.groups import CoordinatorRecord
from blumfeld.wire.codec import decode
from blumfeld.wire.messages.group_coordinator_records import (
    GroupMetadataKey,
    LegacyOffsetCommitKey,
    OffsetCommitKey,
    OffsetCommitValue,
)
from blumfeld.wire.primitives import ZERO_UUID, DecodeError, EncodeError

NAMES = ("", "g", "gruppe-ä", "x" * 300)
METADATA = ("", "m", "ü" * 62, "m" * 125, "m" * 126, "m" * 127, "m" * 4_096)


def values() -> list[OffsetCommitValue]:
    random = Random(3)
    return [
        OffsetCommitValue(
            offset=random.choice((-1, 0, 5, 1 << 40)),
            leader_epoch=random.choice((-1, 0, 77)),
            metadata=metadata,
            commit_timestamp=random.choice((0, 1_700_000_000_000)),
            expire_timestamp=random.choice((-1, 1_800_000_000_000)),
            topic_id=topic_id,
        )
        for metadata in METADATA
        for topic_id in (ZERO_UUID, b"i" * 16)
        for _ in range(6)
    ]


@pytest.mark.parametrize("version", range(5))
def test_a_value_of_any_version_is_read(version: int) -> None:
    for value in values():
        encoded = record(OffsetCommitKey(), value, version).value
        assert encoded is not None
        assert decode_value(encoded) == committed_of(decode(OffsetCommitValue, encoded, version, 2))


def test_a_value_is_written_as_the_general_codec_writes_it() -> None:
    """Version 4; with a retention of its own version 1, which has neither epoch nor id."""
    for value in values():
        committed = committed_of(value)
        retained = value.expire_timestamp != -1
        by_codec = record(OffsetCommitKey(), value, 1 if retained else 4).value
        assert encode_value(committed) == by_codec


def test_a_key_is_written_and_read_as_the_general_codec_does() -> None:
    for group in NAMES:
        for topic in NAMES:
            for partition in (0, 9, 1 << 20):
                key = OffsetCommitKey(group=group, topic=topic, partition=partition)
                encoded = record(key, None).key
                assert encode_key(group, topic, partition) == encoded
                assert decode_key(encoded) == (group, (topic, partition))
                legacy = LegacyOffsetCommitKey(group=group, topic=topic, partition=partition)
                assert decode_key(record(legacy, None).key) == (group, (topic, partition))


def test_a_value_with_tags_of_a_newer_build_is_read() -> None:
    value = encode_value(CommittedOffset(5, 1, "m", 7, -1, ZERO_UUID))
    assert value[-1:] == b"\x00"
    assert decode_value(value[:-1] + b"\x01\x09\x02xy") == CommittedOffset(5, 1, "m", 7, -1, ZERO_UUID)


def test_bytes_that_are_none_are_refused() -> None:
    value = encode_value(CommittedOffset(5, 1, "m", 7, -1, b"i" * 16))
    key = encode_key("g", "topic", 5)
    for cut in range(len(value)):
        with pytest.raises(DecodeError):
            decode_value(value[:cut])
    for cut in range(len(key)):
        with pytest.raises(DecodeError):
            decode_key(key[:cut])
    for bad in (
        key + b"x",
        b"\x00\x02" + key[2:],
        key.replace(b"g", b"\xff"),
        key.replace(b"topic", b"t\xff\xfeic"),
    ):
        with pytest.raises(DecodeError):
            decode_key(bad)


def test_a_name_that_has_no_form_is_our_mistake() -> None:
    with pytest.raises(EncodeError):
        encode_key("g" * 40_000, "t", 0)
    with pytest.raises(EncodeError):
        encode_value(CommittedOffset(5, 1, "m" * 40_000, 7, -1, ZERO_UUID))


def committed(offset: int) -> CommittedOffset:
    return CommittedOffset(offset, 0, "", 1, -1, b"i" * 16)


def random_items(random: Random) -> list[CoordinatorRecord]:
    """Commits and tombstones of few groups, and now and then a record of another type."""
    items = []
    for offset in range(300):
        group, topic = random.choice(("a", "ab", "b")), random.choice(("t", "u"))
        kind = random.random()
        if kind < 0.3:
            items.append(tombstone(group, topic, random.randrange(3)))
        elif kind < 0.4:
            items.append(record(GroupMetadataKey(group=group), None))
        else:
            items.append(offset_record(group, topic, random.randrange(3), committed(offset)))
    return items


def state(store: OffsetStore) -> dict[str, dict[tuple[str, int], CommittedOffset]]:
    return {group: dict(store.of_group(group)) for group in store.groups()}


def test_a_run_is_replayed_as_its_records_one_by_one() -> None:
    random = Random(11)
    for _ in range(40):
        items = random_items(random)
        slowly, quickly = OffsetStore(), OffsetStore()
        others: list[bytes] = []

        def other(
            key: bytes, value: bytes | None, store: OffsetStore = quickly, seen: list[bytes] = others
        ) -> None:
            if key[:2] == b"\x00\x02":
                seen.append(key)
            else:
                store.replay_encoded(key, value)

        for item in items:
            if item.key[:2] != b"\x00\x02":
                slowly.replay_encoded(item.key, item.value)
        quickly.replay_run(RecordRun([i.key for i in items], [i.value for i in items]), other)
        assert state(quickly) == state(slowly)
        assert list(quickly.groups()) == list(slowly.groups())
        assert others == [item.key for item in items if item.key[:2] == b"\x00\x02"]
        assert len(quickly) == sum(len(offsets) for offsets in state(slowly).values())


def test_a_group_that_was_forgotten_begins_anew_in_the_same_run() -> None:
    store = OffsetStore()
    items = [
        offset_record("g", "t", 1, committed(5)),
        tombstone("g", "t", 1),
        offset_record("g", "t", 2, committed(6)),
    ]
    store.replay_run(RecordRun([i.key for i in items], [i.value for i in items]), store.replay_encoded)
    assert state(store) == {"g": {("t", 2): committed(6)}}


def test_what_is_committed_for_a_new_topic_of_a_name_is_not_forgotten_with_the_old_one() -> None:
    """Forgetting takes a while. What has no id may be of either, and goes."""
    store = OffsetStore()
    for partition, topic_id in enumerate((b"o" * 16, b"n" * 16, ZERO_UUID)):
        item = offset_record("g", "t", partition, CommittedOffset(1, 0, "", 1, -1, topic_id))
        store.replay_encoded(item.key, item.value)
    forgotten = store.tombstones_of_topics(("t",), (b"o" * 16,))
    assert forgotten == [tombstone("g", "t", 0), tombstone("g", "t", 2)]
    assert len(store.tombstones_of_topics(("t",))) == 3
    assert store.tombstones_of_topics(("u",), (b"o" * 16,)) == []


def test_a_decoded_record_is_the_same_as_an_encoded_one() -> None:
    encoded, decoded = OffsetStore(), OffsetStore()
    item = offset_record("g", "t", 1, committed(5))
    assert item.value is not None
    encoded.replay_encoded(item.key, item.value)
    decoded.replay(
        OffsetCommitKey(group="g", topic="t", partition=1), decode(OffsetCommitValue, item.value, 4, 2)
    )
    assert state(encoded) == state(decoded) == {"g": {("t", 1): committed(5)}}


def test_a_version_of_the_future_is_refused_when_it_is_replayed() -> None:
    item = offset_record("g", "t", 1, committed(5))
    assert item.value is not None
    future = b"\x00\x05" + item.value[2:]
    with pytest.raises(DecodeError):
        OffsetStore().replay_encoded(item.key, future)
    with pytest.raises(DecodeError):
        OffsetStore().replay_run(RecordRun([item.key], [future]), lambda *_: None)


def test_groups_share_the_names_of_what_they_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A million offsets of a hundred partitions hold a hundred names; how many are remembered is bounded."""
    monkeypatch.setattr("blumfeld.coordinator.groups.offsets.PLACES_MAX", 2)
    store = OffsetStore()
    for group in ("a", "b"):
        for partition in range(5):
            store.replay_run(
                RecordRun([encode_key(group, "t", partition)], [encode_value(committed(1))]), lambda *_: None
            )
    assert [len(store.of_group(group)) for group in ("a", "b")] == [5, 5]
    store.replay_encoded(encode_key("c", "t", 4), encode_value(committed(1)))
    (of_b,) = [place for place in store.of_group("b") if place[1] == 4]
    assert next(iter(store.of_group("c"))) is of_b
