"""A segment in the store is whole or recognisable garbage, wherever its upload ends."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from crc32c import crc32c

from blumfeld.spi.object_store import StoreError, StoreUnavailableError
from blumfeld_kit.fakes.object_store import Fate, ProcessDied, SimulatedBucket, SimulatedStore
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_storage_tiered.objects.manifest import SegmentCorruptError, decode_manifest
from blumfeld_storage_tiered.objects.names import MANIFEST, SegmentFile, object_key
from blumfeld_storage_tiered.objects.segments import SegmentObjects
from blumfeld_storage_tiered.objects.upload import Verify
from tests.everyday import for_each
from tests.plugins.storage_tiered.segments import CHUNK, CLUSTER_ID, LOG, PART, Rig, collect, segment

REQUESTS = 5 + 5 + 6 + 1
"""The log in three parts is five requests, five small files, a head for each of six, and the manifest."""


def another_process(rig: Rig) -> tuple[FakeRuntime, SegmentObjects]:
    """What another process, at the same time, sees of the bucket."""
    runtime = FakeRuntime(9, loop=rig.runtime.loop)
    rig.bucket.faults.heal()
    return runtime, SegmentObjects(runtime, SimulatedStore(runtime, rig.bucket))


def test_every_file_arrives_and_the_manifest_is_the_last_request() -> None:
    rig = Rig()
    rig.upload(segment())
    assert rig.bucket.requests == REQUESTS
    assert rig.bucket.trace[-1].split()[2:4] == ["put", object_key(segment(), MANIFEST)]
    assert rig.bucket.read(object_key(segment(), "log")) == LOG
    assert rig.bucket.read(object_key(segment(), "leader_epoch_checkpoint")) == b"0\n1\n0 0\n"
    assert len(rig.bucket.keys()) == 7


def test_the_manifest_has_the_facts_of_the_record_and_a_checksum_of_every_byte() -> None:
    rig = Rig()
    custom_metadata = rig.upload(segment())
    key = object_key(segment(), MANIFEST)
    manifest = decode_manifest(key, rig.bucket.read(key))
    assert manifest.cluster_id == CLUSTER_ID
    restored = manifest.segment(1, segment().event_timestamp_ms, custom_metadata)
    assert restored == msgspec.structs.replace(segment(), custom_metadata=custom_metadata)
    assert manifest.files["log"].crc32c == crc32c(LOG)
    assert [manifest.chunk_crc(n) for n in range(10)] == [
        crc32c(LOG[at : at + CHUNK]) for at in range(0, len(LOG), CHUNK)
    ]
    assert len(custom_metadata) == 5
    assert custom_metadata[0] == 1
    assert int.from_bytes(custom_metadata[1:], "big") == crc32c(rig.bucket.read(key))


def test_the_gate_is_asked_before_each_part() -> None:
    rig = Rig()
    rig.upload(segment())
    assert rig.paced[:3] == [PART, PART, 1500]
    assert sum(rig.paced) == len(LOG) + 24 + 36 + 34 + 8 + 8


def test_a_gate_that_is_shut_holds_the_upload() -> None:
    rig = Rig()
    gate = asyncio.Event()

    async def pace(size: int) -> None:
        await gate.wait()

    rig.runtime.spawn(upload_quietly(rig, pace), "upload")
    rig.runtime.advance(60_000)
    assert [line.split()[2] for line in rig.bucket.trace] == ["begin"]
    gate.set()
    rig.runtime.advance(60_000)
    assert rig.bucket.requests == REQUESTS


async def upload_quietly(rig: Rig, pace: Any) -> None:
    await rig.uploads.upload(segment(), rig.sources, pace)


@pytest.mark.parametrize("size", [0, 1, CHUNK, PART - 1, PART, PART + 1, 2 * PART])
def test_a_log_of_any_length_arrives_whole(size: int) -> None:
    rig = Rig(verify="read")
    rig.sources[SegmentFile.LOG] = rig._file("log2", LOG[:size])
    rig.upload(segment(size=size))
    assert rig.bucket.read(object_key(segment(), "log")) == LOG[:size]
    assert rig.runtime.run(rig.segments.read_range(segment(), 0, size + 5)) == LOG[:size]
    assert rig.runtime.run(rig.segments.verify(segment(size=size))) == []


@for_each(
    [(fate, nth) for fate in Fate if fate not in (Fate.GOOD, Fate.SLOW) for nth in range(1, REQUESTS + 1)]
)
def test_a_failure_at_any_request_leaves_a_whole_segment_or_garbage(fate: Fate, nth: int) -> None:
    rig = Rig()
    rig.bucket.faults.scripted = {nth: fate}
    with pytest.raises((StoreError, ProcessDied)):
        rig.upload(segment())
    check_what_is_left(rig, whole=nth == REQUESTS and fate in (Fate.LOST_ANSWER, Fate.DIES_AFTER))


def check_what_is_left(rig: Rig, *, whole: bool) -> None:
    """Whole means that every byte is there. Garbage is found by its listing, and can be deleted."""
    runtime, segments = another_process(rig)
    stored_segments = runtime.run(collect(segments.list_segments()))
    assert [stored.is_whole for stored in stored_segments] in ([whole], []), rig.bucket.trace
    if whole:
        manifest, custom_metadata = runtime.run(segments.manifest_of(stored_segments[0].name))
        assert runtime.run(segments.verify(manifest.segment(1, 0, custom_metadata))) == []
    for stored in stored_segments:
        runtime.run(segments.delete(stored.name))
    assert rig.bucket.keys() == []


@for_each([(seed,) for seed in range(30)])
def test_an_upload_through_a_bad_day_is_whole_when_it_succeeds(seed: int) -> None:
    bucket = SimulatedBucket()
    for name in ("unavailable", "throttled", "lost_answer", "slow", "cut_upload"):
        setattr(bucket.faults, name, 0.02)
    rig = Rig(seed, bucket)
    for attempt in range(20):
        copy = segment(segment_id=bytes([attempt]) * 16)
        try:
            custom_metadata = rig.upload(copy)
        except StoreUnavailableError:
            continue
        bucket.faults.heal()
        done = msgspec.structs.replace(copy, custom_metadata=custom_metadata)
        assert rig.runtime.run(rig.segments.verify(done)) == []
        return
    raise AssertionError("no attempt succeeded")


def test_a_cancelled_upload_leaves_no_manifest() -> None:
    rig = Rig()
    task = rig.runtime.spawn(upload_quietly(rig, rig.pace), "upload")
    rig.runtime.advance(30)
    assert 2 < rig.bucket.requests < REQUESTS
    task.cancel()
    rig.runtime.advance(60_000)
    assert [key for key in sorted(rig.bucket.keys()) if key.endswith(MANIFEST)] == []


def test_an_object_that_arrived_short_is_found_before_the_manifest() -> None:
    rig = Rig()

    async def pace(size: int) -> None:
        if size == 34:  # the files before it are there
            rig.bucket.replace(object_key(segment(), "index"), b"\0" * 23)

    with pytest.raises(SegmentCorruptError, match=r"\.index: found 23 bytes; written was 24 bytes"):
        rig.runtime.run(rig.uploads.upload(segment(), rig.sources, pace))
    check_what_is_left(rig, whole=False)


def test_only_reading_back_finds_a_bit_that_flipped() -> None:
    ways: tuple[Verify, ...] = ("size", "read")
    for verify in ways:
        rig = Rig(verify=verify)

        async def pace(size: int, rig: Rig = rig) -> None:
            if size == 36:
                rig.bucket.rot(object_key(segment(), "log"), 5000)

        if verify == "size":
            rig.runtime.run(rig.uploads.upload(segment(), rig.sources, pace))
        else:
            with pytest.raises(SegmentCorruptError, match=r"\.log: found CRC32C [0-9a-f]{8}; written was"):
                rig.runtime.run(rig.uploads.upload(segment(), rig.sources, pace))
            check_what_is_left(rig, whole=False)


def test_a_log_that_is_not_as_long_as_its_record_says_is_refused() -> None:
    rig = Rig()
    with pytest.raises(OSError, match=r"has 9692 bytes, not 9693"):
        rig.upload(segment(size=len(LOG) + 1))
    check_what_is_left(rig, whole=False)


def test_a_file_that_is_gone_fails_the_upload() -> None:
    rig = Rig()
    rig.runtime.files.unlink("/data/ticks-3/00000000000000000100.timeindex")
    with pytest.raises(OSError, match="timeindex"):
        rig.upload(segment())
    check_what_is_left(rig, whole=False)


def test_a_segment_without_a_file_that_kafka_reads_is_refused_before_anything_is_sent() -> None:
    rig = Rig()
    del rig.sources[SegmentFile.PRODUCER_SNAPSHOT]
    with pytest.raises(ValueError, match="a segment without snapshot"):
        rig.upload(segment())
    assert rig.bucket.requests == 0
