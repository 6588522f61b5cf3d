"""The columns of the matrix: what must come of it when a client produces, consumes and administers."""

from __future__ import annotations

import time
from collections.abc import Callable

from blumfeld.wire.compression.codec import Codec
from campaigns.clients.checks.scene import Scene
from campaigns.clients.client import CheckFailed, Client, NotOffered
from campaigns.clients.records import (
    EPOCH_MS,
    Received,
    Sample,
    Sending,
    differences,
    header_samples,
    mixed_samples,
    numbered_samples,
    tombstone_samples,
)
from campaigns.clients.verdicts import require

PARTITIONS = 3
LOAD_RECORDS = 5_000
LOAD_RECORD_BYTES = 200

Check = Callable[[Client, Scene], None]


def metadata(client: Client, scene: Scene) -> None:
    """The client sees the brokers where it dialled, and a topic with its partitions."""
    topic = scene.new_topic(PARTITIONS)
    view = client.cluster()
    addresses = sorted(f"{host}:{port}" for _, host, port in view.brokers)
    require(addresses == sorted(scene.servers), f"brokers {view.brokers}")
    require(view.topics.get(topic) == PARTITIONS, f"{topic} has {view.topics.get(topic)} partitions")


def auto_create(client: Client, scene: Scene) -> None:
    """Producing into a topic that isn't there creates it."""
    topic = scene.topic("new")
    samples = numbered_samples(3, 1)
    client.produce(topic, samples)
    same(client, samples, client.consume(topic, scene.group(), len(samples)))


def acks(client: Client, scene: Scene) -> None:
    """acks 0, 1 and all each bring every record."""
    topic = scene.new_topic(1)
    sent: list[Sample] = []
    for n, level in enumerate(("0", "1", "all")):
        samples = numbered_samples(10, 1, first=10 * n)
        client.produce(topic, samples, Sending(acks=level))
        sent += samples
        wait_for_records(scene, topic, len(sent))
    same(client, sent, client.consume(topic, scene.group(), len(sent)))


def codec_check(codec: str) -> Check:
    """Records of many shapes come back as they were sent, and lie in the log under that codec."""

    def check(client: Client, scene: Scene) -> None:
        if codec not in client.traits.codecs:
            raise NotOffered(client.traits.without_codec or f"{client.name} can't write {codec}")
        partitions = PARTITIONS if client.traits.chooses_partition else 1
        topic = scene.new_topic(partitions)
        samples = mixed_samples(client.traits, partitions)
        client.produce(topic, samples, Sending(codec=codec))
        same(client, samples, client.consume(topic, scene.group(), len(samples)))
        codecs = {b.codec for n in range(partitions) for b in scene.batches(topic, n)}
        require(Codec[codec.upper()] in codecs, f"the log holds {sorted(c.name for c in codecs)}")

    check.__doc__ = codec_check.__doc__
    return check


def headers(client: Client, scene: Scene) -> None:
    """Headers keep their order, repetition and bytes."""
    topic = scene.new_topic(1)
    samples = header_samples(client.traits)
    client.produce(topic, samples)
    same(client, samples, client.consume(topic, scene.group(), len(samples)))


def tombstone(client: Client, scene: Scene) -> None:
    """A null value is not an empty one, and a null key not an empty one."""
    topic = scene.new_topic(1, {"cleanup.policy": "delete"})
    samples = tombstone_samples(client.traits)
    client.produce(topic, samples)
    same(client, samples, client.consume(topic, scene.group(), len(samples)))


def idempotent(client: Client, scene: Scene) -> None:
    """With idempotence every batch has a producer id, and its sequences follow each other."""
    partitions = PARTITIONS if client.traits.chooses_partition else 1
    topic = scene.new_topic(partitions)
    samples = numbered_samples(200, partitions)
    client.produce(topic, samples, Sending(idempotent=True))
    same(client, samples, client.consume(topic, scene.group(), len(samples)))
    for partition in range(partitions):
        next_sequence: dict[int, int] = {}
        for batch in scene.batches(topic, partition):
            require(batch.producer_id >= 0, f"batch {batch.base_offset} has no producer id")
            wanted = next_sequence.get(batch.producer_id, 0)
            require(batch.base_sequence == wanted, f"sequence {batch.base_sequence}, not {wanted}")
            next_sequence[batch.producer_id] = batch.last_sequence + 1


def resume(client: Client, scene: Scene) -> None:
    """A group does not get again the records that it has committed, and gets all that came since."""
    partitions = PARTITIONS if client.traits.chooses_partition else 1
    topic = scene.new_topic(partitions)
    first, second = numbered_samples(30, partitions), numbered_samples(30, partitions, first=30)
    client.produce(topic, first)
    same(client, first, client.consume(topic, scene.group(), len(first)))
    client.produce(topic, second)
    same(client, second, client.consume(topic, scene.group(), len(second)))


def offsets(client: Client, scene: Scene) -> None:
    """Earliest, latest, and the first offset at or after a time."""
    topic = scene.new_topic(1)
    if client.traits.sets_timestamp:
        client.produce(topic, numbered_samples(30, 1))
        asked_ms = EPOCH_MS + 11_500
    else:
        client.produce(topic, numbered_samples(12, 1))
        time.sleep(0.3)
        asked_ms = int(time.time() * 1000)
        time.sleep(0.3)
        client.produce(topic, numbered_samples(18, 1, first=12))
    known_offsets = client.offsets(topic, asked_ms)
    require(known_offsets == {0: (0, 30, 12)}, f"earliest, latest, by time: {known_offsets}")


def topics(client: Client, scene: Scene) -> None:
    """Create a topic, see it, give it more partitions, delete it."""
    topic = scene.topic("made")
    client.create_topic(topic, 2, {"retention.ms": "3600000"})
    scene.wait("the new topic", lambda: scene.led_partitions(topic) == 2)
    require(client.cluster().topics.get(topic) == 2, "the client does not see the new topic")
    client.add_partitions(topic, 5)
    scene.wait("five partitions", lambda: scene.led_partitions(topic) == 5)
    client.delete_topic(topic)
    scene.wait("the topic to go", lambda: scene.led_partitions(topic) == 0)
    require(topic not in client.cluster().topics, "the client still sees the topic")


def configs(client: Client, scene: Scene) -> None:
    """Describe a topic's configuration, alter a key, see it changed."""
    topic = scene.new_topic(1, {"retention.ms": "7200000"})
    require(client.topic_config(topic).get("retention.ms") == "7200000", "retention.ms is not as created")
    client.set_topic_config(topic, "max.message.bytes", "12345")
    deadline = time.monotonic() + 60
    while (now := client.topic_config(topic)).get("max.message.bytes") != "12345":
        require(time.monotonic() < deadline, f"max.message.bytes is {now.get('max.message.bytes')}")
        time.sleep(0.2)


def groups(client: Client, scene: Scene) -> None:
    """List groups, describe one, and delete it where the client can."""
    topic = scene.new_topic(1)
    name = scene.group()
    client.produce(topic, numbered_samples(5, 1))
    client.consume(topic, name, 5)
    require(name in client.group_ids(), "the group is not listed")
    scene.wait("the group to be empty", lambda: client.group_state(name) == "Empty")
    if not client.traits.deletes_groups:
        return
    client.delete_group(name)
    require(name not in client.group_ids(), "the group is still listed")


def load(client: Client, scene: Scene) -> None:
    """Many records at once arrive, every one."""
    partitions = PARTITIONS if client.traits.chooses_partition else 1
    topic = scene.new_topic(partitions)
    came = client.load(topic, scene.group(), LOAD_RECORDS, LOAD_RECORD_BYTES)
    require(came == LOAD_RECORDS, f"{came} of {LOAD_RECORDS} came")
    there = records_in(scene, topic, partitions)
    require(there == LOAD_RECORDS, f"the log holds {there} records, not {LOAD_RECORDS}")


COLUMNS: dict[str, Check] = {
    "metadata": metadata,
    "auto-create": auto_create,
    "acks": acks,
    "none": codec_check("none"),
    "gzip": codec_check("gzip"),
    "snappy": codec_check("snappy"),
    "lz4": codec_check("lz4"),
    "zstd": codec_check("zstd"),
    "headers": headers,
    "tombstone": tombstone,
    "idempotent": idempotent,
    "resume": resume,
    "offsets": offsets,
    "topics": topics,
    "configs": configs,
    "groups": groups,
    "load": load,
}
"""Every check by the title of its column, in the order in which they run."""


def same(client: Client, sent: list[Sample], got: list[Received]) -> None:
    """Check that the records that were sent came back.

    :raises CheckFailed: it isn't; the first differences are named
    """
    wrong = differences(sent, got, client.traits, int(time.time() * 1000))
    if wrong:
        more = f" (and {len(wrong) - 2} more)" if len(wrong) > 2 else ""
        raise CheckFailed("; ".join(wrong[:2]) + more)


def wait_for_records(scene: Scene, topic: str, count: int) -> None:
    """Until partition 0 holds so many: acks 0 is no promise that they are there."""
    scene.wait(f"{count} records", lambda: records_in(scene, topic, 1) >= count)


def records_in(scene: Scene, topic: str, partitions: int) -> int:
    """Return the number of records that the logs hold."""
    return sum(b.record_count for n in range(partitions) for b in scene.batches(topic, n))
