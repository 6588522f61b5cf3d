"""consensus_kraft: decisions that take several batches and turns (ADR 0021)."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from blumfeld.metadata.image.checkpoint import CheckpointId, batch_records, decode_checkpoint
from blumfeld.metadata.image.cluster_image import ELR_FEATURE, MetadataImage
from blumfeld.metadata.image.records import image_of, image_records
from blumfeld.metadata.slices import BATCH_RECORDS_MAX, SLICE_RECORDS
from blumfeld.spi.cluster import ClusterImage, ImageDelta
from blumfeld.spi.completion import Completion
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from blumfeld.wire.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)
from blumfeld.wire.messages.create_topics import CreatableTopicConfig, CreateTopicsResponse
from blumfeld.wire.messages.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    EndTransactionRecord,
    RegisterControllerRecord,
    TopicRecord,
)
from blumfeld.wire.schema import Message
from blumfeld_kit.fakes.files import FakeDisk
from tests.coordinator.fakes import code_of
from tests.everyday import first
from tests.plugins.consensus_kraft.kraft_node import CLUSTER_ID, LOG_DIR, KraftNode, creation

PARTITIONS = 600
SILENT = 2


def batches(node: KraftNode) -> list[list[Message]]:
    """The records of each batch in the log; control batches are left out."""
    raft = node.metadata.replica.log
    return [batch_records(b) for b in raft.log.batches(0) if not b.is_control]


def end(node: KraftNode) -> int:
    raft = node.metadata.replica.log
    return raft.log.written_end_offset


def turn_by_turn(node: KraftNode) -> None:
    """From now on the next turn comes a millisecond later, so that a test can stop between two turns."""
    call_later = node.runtime.call_later
    node.runtime.call_later = lambda delay_ms, callback: call_later(max(delay_ms, 1.0), callback)  # type: ignore[method-assign]


def begin(node: KraftNode, partitions: int = 2_500) -> Completion[Message]:
    """Ask for a large topic, and stop when the first batches of its transaction are in the log."""
    turn_by_turn(node)
    before = end(node)
    answer = node.submit(creation("alpha", partitions=partitions))
    turns_until(node, lambda: end(node) > before)
    assert isinstance(batches(node)[-1][0], BeginTransactionRecord)
    return answer


def has_ended(node: KraftNode) -> bool:
    return any(isinstance(b[0], EndTransactionRecord) for b in batches(node)[1:])


def turns_until(node: KraftNode, condition: Callable[[], Any], most: int = 500) -> int:
    """Run turns until the condition holds; their number."""
    for turn in range(most):
        if condition():
            return turn
        node.runtime.advance(1.0)
    raise AssertionError("it never held")


def join_another(node: KraftNode) -> int:
    """A second broker registers and is unfenced; its epoch."""
    registration = BrokerRegistrationRequest(
        broker_id=SILENT,
        cluster_id=CLUSTER_ID,
        incarnation_id=b"another process.",
        listeners=[Listener(name="PLAINTEXT", host="127.0.0.1", port=9093)],
        features=[
            Feature(name="metadata.version", min_supported_version=7, max_supported_version=30),
            Feature(name=ELR_FEATURE, min_supported_version=0, max_supported_version=1),
        ],
        rack=None,
        log_dirs=[b"its one director"],
    )
    epoch = node.ask(registration, BrokerRegistrationResponse).broker_epoch
    beat = BrokerHeartbeatRequest(broker_id=SILENT, broker_epoch=epoch, current_metadata_offset=epoch)
    assert not node.ask(beat, BrokerHeartbeatResponse).is_fenced
    return epoch


def heard(node: KraftNode, epoch: int, **wants: Any) -> Completion[Message]:
    beat = BrokerHeartbeatRequest(
        broker_id=SILENT, broker_epoch=epoch, current_metadata_offset=10**9, **wants
    )
    return node.submit(beat, 60_000)


def on_both(node: KraftNode, partitions: int = PARTITIONS) -> None:
    """A topic with a replica on each broker; each leads every second partition."""
    request = creation("alpha", partitions=partitions)
    request.topics[0].replication_factor = 2
    node.ask(request, CreateTopicsResponse)


def partitions_of(image: ClusterImage) -> int:
    return len(image.topics["alpha"].partitions) if "alpha" in image.topics else 0


def test_a_large_atomic_decision_is_a_transaction(node: KraftNode) -> None:
    before = len(batches(node))
    seen: set[int] = set()
    turn_by_turn(node)
    answer = node.submit(creation("alpha", partitions=PARTITIONS))
    turns_until(node, lambda: seen.add(partitions_of(node.image)) or answer.done)  # type: ignore[func-returns-value]
    made = batches(node)[before:]
    assert [type(b[0]) for b in (made[0], made[-1])] == [BeginTransactionRecord, EndTransactionRecord]
    assert sum(len(b) for b in made) == PARTITIONS + 3
    assert max(len(b) for b in made) == BATCH_RECORDS_MAX
    assert seen == {0, PARTITIONS}, "a reader saw a part of it"
    kept = node.content()
    node.stop()
    assert node.again().content() == kept


def test_a_small_decision_is_one_batch_without_a_transaction(node: KraftNode) -> None:
    before = len(batches(node))
    node.create("alpha", partitions=BATCH_RECORDS_MAX - 1)
    (only,) = batches(node)[before:]
    assert isinstance(only[0], TopicRecord)


def test_batches_are_cut_by_bytes_too(disk: FakeDisk) -> None:
    node = KraftNode(disk, config={"internal.metadata.max.batch.size.in.bytes": 2_000}).start()
    node.join()
    assert node.create("alpha", partitions=100) == [0]
    raft = node.metadata.replica.log
    assert max(b.size_bytes for b in raft.log.batches(0)) <= 2_000


def test_a_record_that_fits_no_batch_is_refused_and_changes_nothing(disk: FakeDisk) -> None:
    node = KraftNode(disk, config={"internal.metadata.max.batch.size.in.bytes": 2_000}).start()
    node.join()
    request = creation("alpha", partitions=300)
    throttled = ",".join(f"{number}:1" for number in range(1_000))
    request.topics[0].configs = [
        CreatableTopicConfig(name="follower.replication.throttled.replicas", value=throttled)
    ]
    before = len(batches(node))
    refused = node.submit(request)
    turns_until(node, lambda: refused.done)
    assert code_of(refused) == ErrorCode.POLICY_VIOLATION
    assert len(batches(node)) == before
    assert node.create("beta") == [0]


@pytest.mark.parametrize("turns", [0, 1, 2, 4])
def test_a_controller_that_dies_within_a_transaction_leaves_nothing(node: KraftNode, turns: int) -> None:
    before = node.content()
    begin(node)
    node.runtime.advance(turns)
    assert not has_ended(node), "it was too quick"
    node.runtime.crash(power_cut=False)
    again = node.again()
    assert again.content() == before
    assert any(isinstance(r, AbortTransactionRecord) for b in batches(again) for r in b)
    again.join()
    assert again.create("alpha") == [0]


def test_a_log_that_fails_within_a_transaction_aborts_it(node: KraftNode, disk: FakeDisk) -> None:
    """The node lives on: its controller is built anew from the log, without the half."""
    failed = begin(node)
    disk.room = 0
    turns_until(node, lambda: failed.done)
    assert code_of(failed) == ErrorCode.NOT_CONTROLLER
    disk.room = None
    node.runtime.advance(2_000)
    assert "alpha" not in node.image.topics
    assert node.create("alpha", partitions=3) == [0]
    assert partitions_of(node.image) == 3
    kept = node.content()
    node.stop()
    assert node.again().content() == kept


def test_commands_wait_for_the_end_of_a_large_decision_and_keep_their_order(node: KraftNode) -> None:
    answered: list[str] = []
    answers = {
        name: node.submit(creation(name, partitions=partitions))
        for name, partitions in (("alpha", PARTITIONS), ("beta", 1), ("gamma", 1))
    }
    for name, answer in answers.items():
        answer.when_done(lambda _, name=name: answered.append(name))  # type: ignore[misc]
    late = node.submit(creation("delta"), 0.0)
    turns_until(node, lambda: len(answered) == 3)
    assert answered == ["alpha", "beta", "gamma"]
    assert code_of(late) == ErrorCode.REQUEST_TIMED_OUT
    assert list(node.image.topics) == ["alpha", "beta", "gamma"], (
        "what timed out while it waited was not done"
    )
    made = [r for b in batches(node) for r in b]
    begun, ended = (
        max(i for i, r in enumerate(made) if isinstance(r, kind))
        for kind in (BeginTransactionRecord, EndTransactionRecord)
    )
    assert [r.name for r in made[begun:ended] if isinstance(r, TopicRecord)] == ["alpha"]


def test_a_silent_broker_of_many_partitions_is_fenced_in_parts(node: KraftNode) -> None:
    """Its partitions move before it is fenced; commands come between; it leads nothing in the end."""
    join_another(node)
    on_both(node)
    turn_by_turn(node)
    before, begins = len(batches(node)), end(node)
    own = BrokerHeartbeatRequest(broker_id=1, broker_epoch=node.epoch, current_metadata_offset=10**9)
    node.runtime.advance(8_000)
    node.ask(own, BrokerHeartbeatResponse)
    node.runtime.advance(900)
    turns_until(node, lambda: end(node) > begins)
    between = node.submit(creation("beta"))
    turns_until(node, lambda: node.image.brokers[SILENT].fenced)
    assert between.done
    made = batches(node)[before:]
    fences = [i for i, b in enumerate(made) if isinstance(b[-1], BrokerRegistrationChangeRecord)]
    assert fences == [len(made) - 1]
    assert len(made) > PARTITIONS // SLICE_RECORDS
    assert max(len(b) for b in made) <= SLICE_RECORDS + 1
    assert not any(SILENT in (p.leader, *p.isr) for p in node.image.topics["alpha"].partitions.values())
    assert ("warning", "a broker fell silent and is fenced") in node.parts.events.told


def test_a_broker_that_is_heard_from_while_it_is_being_fenced_stays(node: KraftNode) -> None:
    epoch = join_another(node)
    on_both(node)
    turn_by_turn(node)
    begins = end(node)
    node.runtime.advance(8_900)
    turns_until(node, lambda: end(node) > begins)
    heard(node, epoch)
    node.runtime.advance(1_000)
    assert not node.image.brokers[SILENT].fenced
    assert isinstance(node.image, MetadataImage)
    assert node.image.index.in_sync(SILENT), "the rest of its partitions stay"


@pytest.mark.parametrize("seed", first(2, range(6)))
def test_a_fencing_that_a_crash_interrupts_goes_on(node: KraftNode, seed: int) -> None:
    epoch = join_another(node)
    on_both(node, 1_000)
    turn_by_turn(node)
    begins = end(node)
    heard(node, epoch, want_fence=True)
    turns_until(node, lambda: end(node) > begins)
    node.runtime.advance(Random(seed).randrange(4))
    assert not node.image.brokers[SILENT].fenced, "it was too quick"
    node.runtime.crash(power_cut=bool(seed % 2))
    again = node.again()
    again.join()
    again.runtime.advance(12_000)
    assert again.image.brokers[SILENT].fenced
    assert SILENT not in {p.leader for p in again.image.topics["alpha"].partitions.values()}
    assert isinstance(again.image, MetadataImage)
    assert not again.image.index.in_sync(SILENT)


def test_elections_that_a_crash_interrupts_go_on(node: KraftNode) -> None:
    """A broker is unfenced, and its controller dies before it has elected it everywhere."""
    epoch = join_another(node)
    request = creation("alpha", partitions=1_000)
    node.ask(request, CreateTopicsResponse)
    own = BrokerHeartbeatRequest(
        broker_id=1, broker_epoch=node.epoch, current_metadata_offset=10**9, want_fence=True
    )
    node.ask(own, BrokerHeartbeatResponse)
    assert isinstance(node.image, MetadataImage)
    assert len(set(node.image.index.led(-1))) == 1
    heard(node, epoch)
    turn_by_turn(node)
    begins = end(node)
    own.want_fence = False
    node.submit(own)
    turns_until(node, lambda: end(node) > begins)
    assert node.image.index.led(-1)
    node.runtime.crash(power_cut=False)
    again = node.again()
    again.runtime.advance(1_000)
    assert isinstance(again.image, MetadataImage)
    assert not again.image.index.led(-1)


def test_a_heartbeat_is_answered_while_an_image_is_being_applied(node: KraftNode) -> None:
    """What reads the image waits for it; the deltas keep their order."""
    applying: list[Completion[None]] = []
    topic_names: list[str] = []

    def slow(image: ClusterImage, delta: ImageDelta) -> Completion[None] | None:
        topic_names.extend(topic.name for topic in delta.topics_created)
        if delta.first:
            return None
        applying.append(Completion())
        return applying[-1]

    def beat() -> Completion[Message]:
        own = BrokerHeartbeatRequest(broker_id=1, broker_epoch=node.epoch, current_metadata_offset=10**9)
        return node.metadata.submit(own, 5_000, wait_image=False)

    node.metadata.subscribe(slow)
    alpha, beta = node.submit(creation("alpha")), node.submit(creation("beta"))
    waiting = beat()
    node.runtime.advance(100)
    assert (waiting.done, alpha.done, beta.done, topic_names) == (True, False, False, ["alpha"])
    assert beat().done
    applying[0].complete(None)
    node.runtime.run_turn()
    assert (alpha.done, beta.done, topic_names) == (True, False, ["alpha", "beta"])
    applying[1].complete(None)
    node.runtime.run_turn()
    assert beta.done


def test_a_snapshot_over_many_turns_is_the_image_of_its_beginning(node: KraftNode) -> None:
    node.create("alpha", partitions=PARTITIONS)
    at, kept = node.metadata.applied_offset, node.content()
    turn_by_turn(node)
    node.metadata.replica.snapshots.take()
    node.runtime.run_turn()
    node.submit(creation("beta"))
    turns = turns_until(node, node.snapshots)
    assert turns >= PARTITIONS // SLICE_RECORDS
    (name,) = node.snapshots()
    checkpoint_id = CheckpointId.of(name)
    assert checkpoint_id is not None
    assert checkpoint_id.end_offset == at + 1
    data = node.runtime.files.read_bytes(f"{LOG_DIR}/{name}")
    image = image_of(CLUSTER_ID, decode_checkpoint(data, name).records)
    assert [r for r in image_records(image) if not isinstance(r, RegisterControllerRecord)] == kept


def test_a_snapshot_within_a_transaction_contains_none_of_it(node: KraftNode) -> None:
    raft, taking = node.metadata.replica.log, node.metadata.replica.snapshots
    begin(node, 5_000)
    assert raft.committed_end > node.metadata.applied_offset + 1
    taking.take()
    turns_until(node, node.snapshots)
    turns_until(node, lambda: "alpha" in node.image.topics)
    kept = node.content()
    node.runtime.crash(power_cut=False)
    assert node.again().content() == kept
