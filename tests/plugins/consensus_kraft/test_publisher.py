"""Publishing by itself, where a node would need a rare moment."""

from __future__ import annotations

import pytest

from blumfeld.metadata.image.checkpoint import metadata_batch
from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.metadata.image.listeners import ImageListeners
from blumfeld.spi.cluster import ClusterImage, ImageDelta
from blumfeld.spi.completion import Completion
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld.wire.messages import metadata_records as records
from blumfeld.wire.messages.heartbeat import HeartbeatResponse
from blumfeld.wire.schema import Message
from blumfeld_consensus_kraft.publisher import Placed, Publisher, Reply, WaitingReply
from blumfeld_consensus_kraft.stored_state import placed_batch
from blumfeld_kit.fakes import FakeRuntime
from tests.broker.harness import Quiet


def batch(base_offset: int, name: str) -> Placed:
    topic_id = name.encode().ljust(16, b"-")
    return Placed(
        base_offset, base_offset + 1, 1, [records.TopicRecord(name=name, topic_id=topic_id)], 100, 0
    )


class Published(Publisher):
    """An empty image, and what is told of it."""

    def __init__(self) -> None:
        self.runtime = FakeRuntime()
        self.told: list[Exception] = []
        listeners = ImageListeners(self.runtime, Quiet())
        super().__init__(MetadataImage("cluster"), self.runtime, listeners, lambda _: None, self.told.append)


def image_with(*names: str, offset: int) -> MetadataImage:
    publisher = Published()
    for number, name in enumerate(names):
        publisher.uncommitted.append(batch(number, name))
    publisher.committed(len(names))
    while not publisher.is_idle:
        publisher.runtime.run_turn()
    assert isinstance(publisher.image, MetadataImage)
    publisher.image.offset = offset
    return publisher.image


@pytest.fixture
def publisher() -> Published:
    return Published()


def test_a_snapshot_of_the_leader_takes_the_place_of_image_and_batches(publisher: Published) -> None:
    deltas: list[ImageDelta] = []
    publisher.subscribe(lambda _image, delta: deltas.append(delta))
    publisher.publish_all()
    publisher.uncommitted += [batch(0, "gone"), batch(1, "diverged")]
    publisher.committed(1)
    assert list(publisher.image.topics) == ["gone"]
    shown: list[ClusterImage] = []
    publisher.when_shown(50, lambda: shown.append(publisher.image))

    publisher.replace(image_with("one", "two", offset=49))

    assert shown == [publisher.image]
    assert list(publisher.image.topics) == ["one", "two"]
    assert [topic.name for topic in deltas[-1].topics_deleted] == ["gone"]
    assert [topic.name for topic in deltas[-1].topics_created] == ["one", "two"]
    publisher.uncommitted.append(batch(50, "three"))
    publisher.committed(51)
    assert list(publisher.image.topics) == ["one", "two", "three"]


def test_an_answer_may_lead_to_the_next_request(publisher: Published) -> None:
    """Its reply is kept behind those that are being answered."""
    publisher.publish_all()
    answered: list[int] = []

    def ask(end_offset: int) -> None:
        completion: Completion[Message] = Completion()
        publisher.wait(WaitingReply(end_offset, HeartbeatResponse(), Reply(completion, wait_image=False)))
        completion.when_done(lambda _: answered.append(end_offset))
        if end_offset < 3:
            completion.when_done(lambda _: ask(end_offset + 2))

    ask(1)
    ask(2)
    publisher.committed(2)
    assert answered == [1, 2]
    publisher.committed(4)
    assert answered == [1, 2, 3, 4]


def undecoded(base_offset: int, *names: str, damaged: bool = False) -> Placed:
    """A batch as the leader sent it."""
    content = [records.TopicRecord(name=name, topic_id=name.encode().ljust(16, b"-")) for name in names]
    data = metadata_batch(content, base_offset=base_offset, epoch=1, timestamp_ms=0)
    if damaged:
        data[data.index(names[-1].encode()) - 4] = 99  # the version of the last record
    return placed_batch(RecordBatch(memoryview(data)), decode=False)


def test_fetched_records_are_decoded_when_they_are_published_bit_by_bit(publisher: Published) -> None:
    """A controller that begins in the middle finds all of them behind its image."""
    publisher.publish_all()
    names = [f"t{number}" for number in range(1_000)]
    publisher.uncommitted += [undecoded(0, *names[:600]), undecoded(600, *names[600:])]
    assert isinstance(publisher.uncommitted[0].records, RecordBatch)
    publisher.committed(1_000)
    assert not publisher.image.topics, "the first slice is decoded"
    behind, transaction_open = publisher.unpublished()
    assert [len(step.records) for step in behind] == [600, 400]
    assert not transaction_open
    while not publisher.is_idle:
        publisher.runtime.run_turn()
    assert list(publisher.image.topics) == names


def test_nothing_is_published_behind_records_that_cannot_be_read(publisher: Published) -> None:
    publisher.uncommitted += [
        undecoded(0, "first"),
        undecoded(1, "second", "third", damaged=True),
        undecoded(3, "x"),
    ]
    publisher.committed(4)
    publisher.committed(4)
    for _ in range(5):
        publisher.runtime.run_turn()
    assert list(publisher.image.topics) == ["first"]
    assert len(publisher.told) == 1
    assert publisher.image.offset == 0


def test_records_that_contradict_the_image_are_told_and_nothing_behind_them_is_published(
    publisher: Published,
) -> None:
    """The driver ends the node, in whatever turn they are replayed."""
    publisher.publish_all()
    of_no_topic = records.PartitionRecord(topic_id=b"nobody's topic..", replicas=[1], isr=[1], leader=1)
    publisher.uncommitted += [Placed(0, 1, 1, [of_no_topic], 100, 0), batch(1, "behind")]
    publisher.committed(2)
    publisher.committed(2)
    assert len(publisher.told) == 1
    assert not publisher.image.topics


def large_image(topics: int, offset: int) -> MetadataImage:
    return image_with(*(f"t{number}" for number in range(topics)), offset=offset)


def test_a_large_snapshot_is_compared_over_several_turns(publisher: Published) -> None:
    """Readers have the old image until then, and what was committed behind the snapshot comes afterwards. A controller
    that begins meanwhile begins with the new one."""
    deltas: list[ImageDelta] = []
    publisher.subscribe(lambda _image, delta: deltas.append(delta))
    publisher.publish_all()
    old, new = publisher.image, large_image(3_000, offset=2_999)

    publisher.replace(new)
    publisher.uncommitted.append(batch(3_000, "behind"))
    publisher.committed(3_001)

    assert publisher.image is old
    assert publisher.newest is new
    assert [step.last_offset for step in publisher.unpublished()[0]] == [3_000]
    while publisher.image is old:
        publisher.runtime.run_turn()
    assert len(deltas[1].topics_created) == 3_000
    for _ in range(20):
        publisher.runtime.run_turn()
    assert list(publisher.image.topics)[-1] == "behind"
    assert publisher.newest is publisher.image
    assert publisher.is_idle


def test_a_second_snapshot_takes_the_place_of_one_that_is_being_compared(publisher: Published) -> None:
    publisher.publish_all()
    publisher.replace(large_image(3_000, offset=2_999))
    publisher.runtime.run_turn()
    second = image_with("one", offset=9_999)
    publisher.replace(second)
    for _ in range(20):
        publisher.runtime.run_turn()
    assert publisher.image is second


def test_a_snapshot_waits_for_a_listener_that_applies_the_delta_before(publisher: Published) -> None:
    """The delta is between images. A listener that dropped the rest of the one before would miss changes."""
    applying: list[Completion[None]] = []

    def listener(_image: ClusterImage, _delta: ImageDelta) -> Completion[None]:
        applying.append(Completion())
        return applying[-1]

    publisher.publish_all()
    publisher.subscribe(listener)
    applying.pop().complete(None)
    publisher.uncommitted.append(batch(0, "first"))
    publisher.committed(1)
    assert len(applying) == 1
    publisher.replace(image_with("one", offset=49))
    publisher.runtime.run_turn()
    assert len(applying) == 1
    applying[0].complete(None)
    publisher.runtime.run_turn()
    assert len(applying) == 2
