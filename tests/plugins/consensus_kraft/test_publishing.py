"""Publishing by itself, where a node would need a rare moment."""

from __future__ import annotations

from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.spi.cluster import ClusterImage, ImageDelta
from blumfeld.testing.fakes import FakeRuntime
from blumfeld.wire.messages import metadata_records as records
from blumfeld_consensus_kraft.publishing import Placed, Publisher


def batch(base_offset: int, name: str) -> Placed:
    topic_id = name.encode().ljust(16, b"-")
    return Placed(
        base_offset, base_offset + 1, 1, [records.TopicRecord(name=name, topic_id=topic_id)], 100, 0
    )


def image_with(*names: str, offset: int) -> MetadataImage:
    runtime = FakeRuntime()
    publisher = Publisher(MetadataImage("cluster"), runtime, lambda _: None, lambda *_: None)
    for number, name in enumerate(names):
        publisher.uncommitted.append(batch(number, name))
    publisher.committed(len(names))
    assert isinstance(publisher.image, MetadataImage)
    publisher.image.offset = offset
    return publisher.image


def test_a_snapshot_of_the_leader_takes_the_place_of_image_and_batches() -> None:
    runtime = FakeRuntime()
    publisher = Publisher(MetadataImage("cluster"), runtime, lambda _: None, lambda *_: None)
    deltas: list[ImageDelta] = []
    publisher.subscribe(lambda _image, delta: deltas.append(delta))
    publisher.publish_all()
    publisher.uncommitted += [batch(0, "gone"), batch(1, "diverged")]
    publisher.committed(1)
    assert list(publisher.image.topics) == ["gone"]
    shown: list[ClusterImage] = []
    publisher.when_shown(50, lambda: shown.append(publisher.image))

    publisher.replace(image_with("one", "two", offset=49))

    assert list(publisher.image.topics) == ["one", "two"]
    assert [topic.name for topic in deltas[-1].topics_deleted] == ["gone"]
    assert [topic.name for topic in deltas[-1].topics_created] == ["one", "two"]
    assert shown == [publisher.image]
    publisher.uncommitted.append(batch(50, "three"))
    publisher.committed(51)
    assert list(publisher.image.topics) == ["one", "two", "three"]
