"""consensus_kraft: what is answered is durable and in the image, and every start finds it again."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from blumfeld.config.values import TopicConfig
from blumfeld.log.checkpoints import MalformedFile
from blumfeld.metadata.controller import Controller
from blumfeld.metadata.decision import ControllerDecision
from blumfeld.metadata.image.bootstrap import bootstrap_checkpoint
from blumfeld.metadata.image.checkpoint import CheckpointId, decode_checkpoint, encode_checkpoint
from blumfeld.metadata.image.cluster_image import ELR_FEATURE
from blumfeld.spi.cluster import BROKER_RESOURCE, ClusterImage, ImageDelta
from blumfeld.spi.completion import Completion
from blumfeld.spi.hooks import Feature
from blumfeld.spi.storage import TopicPartition
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from blumfeld.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from blumfeld.wire.messages.metadata import MetadataRequest
from blumfeld.wire.messages.metadata_records import (
    BeginTransactionRecord,
    TopicRecord,
)
from blumfeld.wire.messages.raft_records import VotersRecord, VotersRecordVoter
from blumfeld.wire.schema import Message
from blumfeld_consensus_kraft.raft_log import RaftLog
from blumfeld_kit.fakes.files import FakeDisk, Fault
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_kit.storage_driver.node import Listener
from tests.coordinator.fakes import code_of
from tests.everyday import first
from tests.plugins.consensus_kraft.kraft_node import DATA_DIR, LOG_DIR, KraftNode, creation


def read(node: KraftNode, name: str) -> bytes:
    return node.runtime.files.read_bytes(f"{LOG_DIR}/{name}")


def test_a_new_directory_becomes_a_cluster(disk: FakeDisk) -> None:
    node = KraftNode(disk).start()
    assert node.image.features == {"metadata.version": 30, ELR_FEATURE: 1}
    assert node.controller_epoch == 1
    state = json.loads(read(node, "quorum-state"))
    assert state == {
        "clusterId": "",
        "leaderId": 1,
        "leaderEpoch": 1,
        "votedId": -1,
        "appliedOffset": 0,
        "currentVoters": [{"voterId": 1}],
        "data_version": 0,
    }
    assert read(node, "leader-epoch-checkpoint") == b"0\n1\n1 0\n"
    assert read(node, "partition.metadata") == b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"
    bootstrap = node.runtime.files.read_bytes(f"{DATA_DIR}/bootstrap.checkpoint")
    assert [r.meta.name for r in decode_checkpoint(bootstrap, "b").records] == ["FeatureLevelRecord"] * 2
    assert node.image.config(BROKER_RESOURCE, "") == {"min.insync.replicas": "1"}, "as Kafka, with ELR on"
    assert [d.first for d in node.deltas] == [True]
    node.stop()


def test_features_of_plugins_are_finalized_with_a_new_cluster(disk: FakeDisk) -> None:
    node = KraftNode(disk, features=(Feature("group.version", 0, 1, 1),)).start()
    assert node.image.features == {"metadata.version": 30, ELR_FEATURE: 1, "group.version": 1}


def test_what_is_answered_is_in_the_image_and_told(node: KraftNode) -> None:
    assert node.create("alpha", "beta", partitions=3) == [0, 0]
    assert list(node.image.topics) == ["alpha", "beta"]
    last = node.deltas[-1]
    assert [t.name for t in last.topics_created] == ["alpha", "beta"]
    assert len(last.partitions_changed) == 6
    assert node.image.topics["alpha"].partitions[0].leader == 1


def test_nothing_is_answered_before_it_is_flushed(node: KraftNode) -> None:
    node.runtime.offload_delay_ms = lambda: 50.0
    first, second = node.submit(creation("alpha")), node.submit(creation("alpha"))
    node.runtime.run_turn()
    assert not first.done
    assert not second.done, "an answer that saw an uncommitted topic waits for it"
    assert "alpha" not in node.image.topics
    node.runtime.advance(60)
    assert isinstance(first.result(), CreateTopicsResponse)
    refused = second.result()
    assert isinstance(refused, CreateTopicsResponse)
    assert refused.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_changes_of_one_turn_share_a_write_and_a_flush(node: KraftNode, disk: FakeDisk) -> None:
    before = dict(disk.operations)
    answers = [node.submit(creation(f"t{n}")) for n in range(20)]
    node.runtime.advance(10)
    assert all(answer.done for answer in answers)
    assert disk.operations["fdatasync"] - before["fdatasync"] == 1
    assert disk.operations["pwritev"] - before["pwritev"] <= 2, "the log, and perhaps an index"


@pytest.mark.parametrize("power_cut", [False, True])
@pytest.mark.parametrize("seed", first(2, range(5)))
def test_what_was_answered_is_there_after_a_crash(disk: FakeDisk, power_cut: bool, seed: int) -> None:
    node = KraftNode(disk, seed=seed).start()
    node.join()
    node.create("alpha", "beta")
    kept = node.content()
    node.submit(creation("gamma"))
    node.runtime.crash(power_cut=power_cut)
    again = KraftNode(disk, seed=seed + 100).start()
    after = again.content()
    # What was on its way may have been lost or not, but whole.
    assert after == kept or (
        set(again.image.topics) == {"alpha", "beta", "gamma"} and len(after) == len(kept) + 2
    )
    assert again.controller_epoch == 2


def test_a_failed_write_drops_the_controller_and_it_comes_back_in_a_new_epoch(
    node: KraftNode, disk: FakeDisk
) -> None:
    node.create("alpha")
    disk.inject(Fault(operation="pwritev", path_part="__cluster_metadata", error_number=28))
    lost = node.submit(creation("beta"))
    node.runtime.advance(10)
    assert code_of(lost) == ErrorCode.NOT_CONTROLLER
    assert node.metadata.controller is None
    assert code_of(node.submit(creation("beta"))) == ErrorCode.NOT_CONTROLLER
    node.runtime.advance(2_000)
    assert node.controller_epoch == 2
    assert node.create("beta") == [0]
    kept = node.content()
    node.stop()
    assert node.again().content() == kept


def test_after_a_failed_flush_the_log_takes_nothing(node: KraftNode, disk: FakeDisk) -> None:
    disk.inject(Fault(operation="fdatasync", path_part="__cluster_metadata", times=1))
    lost = node.submit(creation("alpha"))
    node.runtime.advance(10_000)
    assert code_of(lost) == ErrorCode.NOT_CONTROLLER
    assert node.metadata.controller is None
    assert code_of(node.submit(creation("beta"))) == ErrorCode.NOT_CONTROLLER
    assert ("error", "the metadata log failed") in node.parts.events.told


def test_a_disk_that_hangs_times_requests_out(node: KraftNode) -> None:
    node.runtime.offload_delay_ms = lambda: 60_000.0
    late = node.submit(creation("alpha"), timeout_ms=100)
    node.runtime.advance(200)
    assert code_of(late) == ErrorCode.REQUEST_TIMED_OUT


def test_commands_that_no_controller_knows_fail(disk: FakeDisk) -> None:
    node = KraftNode(disk).start()
    assert code_of(node.submit(MetadataRequest())) == ErrorCode.UNSUPPORTED_VERSION


def test_before_the_start_and_after_the_stop_there_is_no_controller(disk: FakeDisk) -> None:
    node = KraftNode(disk)
    assert code_of(node.submit(CreateTopicsRequest())) == ErrorCode.NOT_CONTROLLER
    assert node.metadata.quorum() is None
    node.start()
    quorum = node.metadata.quorum()
    assert quorum is not None
    assert quorum.high_watermark == quorum.log_end_offset > 0
    assert quorum.voters == (1,)
    node.stop()
    node.stop()
    assert code_of(node.submit(CreateTopicsRequest())) == ErrorCode.NOT_CONTROLLER


def test_a_stop_lets_what_was_placed_be_committed(node: KraftNode) -> None:
    last = node.submit(creation("alpha"))
    node.stop()
    assert isinstance(last.result(), CreateTopicsResponse)
    assert "alpha" in node.again().image.topics


SMALL_LOG: dict[str, Any] = {
    "metadata.log.max.record.bytes.between.snapshots": 5_000,
    "metadata.max.retention.bytes": 10_000,
}


@pytest.fixture
def snapshotted(disk: FakeDisk) -> KraftNode:
    """A node whose log begins behind the older one of two snapshots."""
    node = KraftNode(disk, config=SMALL_LOG).start()
    node.join()
    for n in range(50):
        node.create(f"t{n}", partitions=10)
        node.runtime.advance(5)
    assert len(node.snapshots()) == 2
    return node


def spoil(node: KraftNode, *names: str) -> None:
    for name in names:
        node.runtime.files.write_atomically(f"{LOG_DIR}/{name}", b"rubbish")


def test_snapshots_stand_in_for_the_log(snapshotted: KraftNode) -> None:
    kept = snapshotted.content()
    snapshotted.runtime.crash(power_cut=False)
    assert snapshotted.again(config=SMALL_LOG).content() == kept


def test_an_older_snapshot_stands_in_for_one_that_can_not_be_read(snapshotted: KraftNode) -> None:
    kept = snapshotted.content()
    snapshotted.stop()
    spoil(snapshotted, snapshotted.snapshots()[-1])
    again = snapshotted.again(config=SMALL_LOG)
    assert again.content() == kept
    assert ("warning", "a metadata snapshot can't be read") in again.parts.events.told


def test_a_log_that_begins_behind_every_readable_snapshot_is_refused(snapshotted: KraftNode) -> None:
    """A start would serve a cluster without topics."""
    snapshotted.stop()
    spoil(snapshotted, *snapshotted.snapshots())
    with pytest.raises(ValueError, match="no snapshot reaches that far"):
        snapshotted.again(config=SMALL_LOG)


def test_a_flipped_bit_in_the_metadata_log_ends_the_start(node: KraftNode) -> None:
    """A clean stop vouches for the log, so nothing else reads it all."""
    node.create("alpha")
    node.stop()
    path = f"{LOG_DIR}/00000000000000000000.log"
    data = bytearray(read(node, "00000000000000000000.log"))
    data[data.index(b"alpha")] ^= 1
    node.runtime.files.write_atomically(path, bytes(data))
    with pytest.raises(ValueError, match=r"__cluster_metadata-0 at offset \d+"):
        node.again()


def test_a_lost_quorum_state_brings_back_no_epoch(disk: FakeDisk) -> None:
    """The log still says which epochs there were."""
    node = KraftNode(disk).start()
    node.stop()
    node.runtime.files.unlink(f"{LOG_DIR}/quorum-state")
    again = KraftNode(disk, seed=1).start()
    assert again.controller_epoch == 2


def test_a_node_whose_vote_can_not_be_read_says_so_and_stops(disk: FakeDisk) -> None:
    KraftNode(disk).start().stop()
    node = KraftNode(disk, seed=1)
    node.runtime.files.write_atomically(f"{LOG_DIR}/quorum-state", b"{")
    with pytest.raises(MalformedFile, match="quorum-state"):
        node.start()
    node.stop()


def test_an_epoch_whose_first_write_failed_is_not_on_record(node: KraftNode, disk: FakeDisk) -> None:
    """Epoch 2 never wrote a record: a follower that asked for its end would cut its log in the wrong place."""
    disk.inject(Fault(operation="pwritev", path_part="__cluster_metadata", error_number=28, times=2))
    node.submit(creation("alpha"))
    node.runtime.advance(20_000)
    assert node.controller_epoch == 3
    epochs = [line.split()[0] for line in read(node, "leader-epoch-checkpoint").decode().splitlines()[2:]]
    assert epochs == ["1", "3"]


WITHOUT_EMPTY_RECORDS = {"metadata.max.idle.interval.ms": 0}
"""An hour has 7,200 of them."""


def test_a_snapshot_is_taken_after_an_hour(disk: FakeDisk) -> None:
    node = KraftNode(disk, config=WITHOUT_EMPTY_RECORDS).start()
    node.runtime.advance(3_600_000 + 1_000)
    assert node.snapshots()


def test_another_metadata_version_is_refused(disk: FakeDisk) -> None:
    files = KraftNode(disk).runtime.files
    files.make_dirs(DATA_DIR)
    files.write_atomically(
        f"{DATA_DIR}/bootstrap.checkpoint", bootstrap_checkpoint({"metadata.version": 25}, 1)
    )
    with pytest.raises(ValueError, match="25"):
        KraftNode(disk).start()


def test_an_answer_is_never_ahead_of_the_image(node: KraftNode) -> None:
    """Also of a command that a listener submits while one of several committed batches is being published."""
    seen: list[tuple[str, bool]] = []

    def ask(image: ClusterImage, delta: ImageDelta) -> None:
        for topic in delta.topics_created:
            if topic.name == "alpha":
                again = node.submit(creation("beta"))
                again.when_done(lambda done: seen.append(("beta", "beta" in node.image.topics)))

    node.metadata.subscribe(ask)
    node.submit(creation("alpha"))
    node.submit(creation("beta"))
    node.runtime.advance(10)
    assert seen == [("beta", True)]


def test_a_disk_that_takes_nothing_fails_the_start(disk: FakeDisk) -> None:
    disk.inject(Fault(operation="pwritev", path_part="__cluster_metadata", times=-1, error_number=28))
    node = KraftNode(disk)
    with pytest.raises(OSError, match="No space left"):
        node.start()


def test_a_directory_whose_voters_stand_in_the_log(disk: FakeDisk) -> None:
    """``kraft.version`` 1 (KIP-853), as ``kafka-storage format --standalone`` begins: one voter, and it is us."""
    first = KraftNode(disk).start()
    directory_id = first.parts.local_storage.log_dirs()[0].directory_id
    first.stop()
    files = KraftNode(disk, seed=1).runtime.files
    for name in files.list_dir(LOG_DIR):
        files.unlink(f"{LOG_DIR}/{name}")
    voters = VotersRecord(voters=[VotersRecordVoter(voter_id=1, voter_directory_id=directory_id)])
    files.make_dirs(LOG_DIR)
    files.write_atomically(
        f"{LOG_DIR}/{CheckpointId(0, 0).name}",
        encode_checkpoint([], epoch=0, timestamp_ms=1, kraft_version=1, voters=voters),
    )
    node = KraftNode(disk, config={"metadata.log.max.record.bytes.between.snapshots": 500})
    node.start()
    node.join()
    node.runtime.advance(10)
    assert json.loads(read(node, "quorum-state"))["data_version"] == 1
    newest = node.snapshots()[-1]
    kept = decode_checkpoint(read(node, newest), newest)
    assert newest > CheckpointId(1, 0).name
    assert (kept.kraft_version, kept.voters) == (1, voters)


def test_a_decision_that_contradicts_the_image_never_reaches_the_log(
    node: KraftNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A defect costs one request and a new epoch, not the directory."""
    node.create("alpha")
    waiting = node.submit(creation("beta"))
    again = ControllerDecision([TopicRecord(name="alpha", topic_id=b"a" * 16)], CreateTopicsResponse())
    with monkeypatch.context() as patch:
        patch.setattr(Controller, "command", lambda *_: again)
        broken = node.submit(CreateTopicsRequest())
    assert code_of(broken) == ErrorCode.UNKNOWN_SERVER_ERROR
    node.runtime.advance(2_000)
    assert isinstance(waiting.result(), CreateTopicsResponse)
    assert node.controller_epoch == 2
    assert node.create("gamma") == [0]
    kept = node.content()
    node.stop()
    assert node.again().content() == kept


def test_a_defect_in_a_decision_costs_that_request_alone(
    node: KraftNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was placed: the controller leads on in its epoch. Records that can't be encoded are no different."""

    def defect(*_: object) -> ControllerDecision:
        raise ZeroDivisionError

    too_long = ControllerDecision([TopicRecord(name="x" * 40_000)], CreateTopicsResponse())
    for command in (defect, defect, lambda *_: too_long):
        with monkeypatch.context() as patch:
            patch.setattr(Controller, "command", command)
            assert code_of(node.submit(CreateTopicsRequest())) == ErrorCode.UNKNOWN_SERVER_ERROR
        assert node.create(f"topic-{len(node.image.topics)}") == [0]
    assert node.controller_epoch == 1
    said = [event for level, event in node.parts.events.told if level == "error"]
    assert said == ["a controller's command met a defect"] * 2, "one for each place"


@pytest.mark.parametrize("where", ["replay", "append"])
def test_a_defect_behind_the_decision_drops_the_controller(
    node: KraftNode, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """It is half changed: a new one is built from the log, in a new epoch."""

    def defect(*_: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        if where == "replay":
            patch.setattr(Controller, "replay", defect)
        else:
            patch.setattr(RaftLog, "append", defect)
        assert code_of(node.submit(creation("alpha"))) == ErrorCode.UNKNOWN_SERVER_ERROR
        assert node.metadata.controller is None
    node.runtime.advance(2_000)
    assert node.controller_epoch == 2
    assert node.create("alpha") == [0]


def test_a_defect_at_the_end_of_a_session_is_tried_again(
    node: KraftNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sessions of other brokers still end. The time in which nothing could be looked at doesn't count."""

    def defect(*_: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(Controller, "fence_expired", defect)
        node.runtime.advance(20_000)
    assert node.metadata.controller is not None
    node.runtime.advance(2_000)
    assert ("warning", "a broker fell silent and is fenced") not in node.parts.events.told
    node.runtime.advance(9_000)
    assert ("warning", "a broker fell silent and is fenced") in node.parts.events.told


def test_a_transaction_that_its_controller_did_not_end_is_aborted(node: KraftNode) -> None:
    """As a Kafka that died between two batches of one change leaves it."""
    assert node.metadata.replica.active is not None
    node.metadata.replica.active.append(
        [BeginTransactionRecord(name="half"), TopicRecord(name="alpha", topic_id=b"a" * 16)]
    )
    node.runtime.advance(10)
    assert "alpha" not in node.image.topics
    node.runtime.crash()
    again = node.again()
    assert "alpha" not in again.image.topics
    again.join()
    assert again.create("alpha") == [0]
    kept = again.content()
    again.stop()
    assert node.again().content() == kept


class Life:
    """One node after the other on one disk, and what was promised."""

    def __init__(self, disk: FakeDisk, seed: int) -> None:
        self.disk = disk
        self.chance = Random(seed)
        self.seed = seed * 10
        self.promised: dict[str, bool] = {}
        """Topic → whether it was last answered to be there."""
        self.unsure: set[str] = set()
        """A change of it was asked for and not answered: it may have happened."""
        self.node = KraftNode(disk, seed=self.seed).start()
        self.count = 0

    def restart(self) -> None:
        """End somehow, start, and look."""
        self.disk.heal()
        if self.chance.random() < 0.3:
            self.node.stop()
        self.node.runtime.crash(power_cut=self.chance.random() < 0.5)
        self.seed += 1
        self.node = KraftNode(self.disk, seed=self.seed).start()
        for name, there in self.promised.items():
            if name not in self.unsure:
                assert (name in self.node.image.topics) == there, name
        self.promised = {name: name in self.node.image.topics for name in self.promised}
        self.unsure.clear()

    def step(self) -> None:
        """Ask for something; the disk may fail; time passes."""
        there = [name for name, is_there in self.promised.items() if is_there and name not in self.unsure]
        if there and self.chance.random() < 0.3:
            self.ask(self.chance.choice(there), False)
        else:
            self.count += 1
            self.ask(f"t{self.count}", True)
        if self.chance.random() < 0.1:
            self.disk.inject(Fault(operation="pwritev", path_part="__cluster_metadata", error_number=28))
        self.node.runtime.advance(self.chance.choice([0, 1, 5, 30, 1_200]))

    def ask(self, name: str, create: bool) -> None:
        node = self.node
        deletion = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)])

        def answered(done: Completion[Message]) -> None:
            if done.error is not None:
                return
            response = done.result()
            if isinstance(response, CreateTopicsResponse) and response.topics[0].error_code:
                return  # the broker was fenced: it sends no heartbeats here
            self.promised[name] = create
            self.unsure.discard(name)
            assert (name in node.image.topics) == create

        self.promised.setdefault(name, False)
        self.unsure.add(name)
        node.submit(creation(name) if create else deletion).when_done(answered)


@pytest.mark.parametrize("seed", first(8, range(25)))
def test_whatever_happens_what_was_answered_stays(disk: FakeDisk, seed: int) -> None:
    """Creations and deletions in flight, slow flushes, failing writes, kills and power cuts, restarts."""
    life = Life(disk, seed)
    kept = 0
    for _ in range(4):
        life.node.join()
        life.node.runtime.offload_delay_ms = lambda: life.chance.uniform(0.0, 20.0)
        for _ in range(life.chance.randrange(3, 25)):
            life.step()
        kept += sum(life.promised.values())
        life.restart()
    assert kept, "nothing was ever promised"


def lose_the_metadata(disk: FakeDisk) -> None:
    """The files of the metadata log are there, and empty."""
    files = FakeRuntime(9, disk=disk).files
    for name in files.list_dir(LOG_DIR):
        if name.endswith(".log"):
            file = files.open(f"{LOG_DIR}/{name}")
            file.truncate(0)
            file.close()


def with_a_log_of_a_topic(disk: FakeDisk) -> None:
    """A node that had a topic, stopped cleanly."""
    node = KraftNode(disk).start()
    node.join()
    node.create("alpha")
    topic = node.image.topics["alpha"].topic_id
    node.runtime.run(
        node.parts.local_storage.open_log(TopicPartition("alpha", 0), topic, TopicConfig(), Listener())
    )
    node.stop()


def test_an_empty_metadata_log_beside_logs_of_topics_is_refused(disk: FakeDisk) -> None:
    with_a_log_of_a_topic(disk)
    lose_the_metadata(disk)
    for _ in range(2):
        node = KraftNode(disk, seed=1)
        with pytest.raises(ValueError, match=r"no metadata.*alpha-0.*--force-empty-metadata"):
            node.start()
        node.runtime.run(node.parts.local_storage.stop(1))
    assert "alpha-0" in node.runtime.files.list_dir(DATA_DIR), "nothing is set aside"


def test_a_start_refused_without_a_metadata_log_makes_none(disk: FakeDisk) -> None:
    """Its directory would look as if metadata had been there."""
    with_a_log_of_a_topic(disk)
    FakeRuntime(9, disk=disk).files.remove_tree(LOG_DIR)
    for _ in range(2):
        node = KraftNode(disk, seed=1)
        with pytest.raises(ValueError, match=r"no metadata.*alpha-0.*--force-empty-metadata"):
            node.start()
        node.runtime.run(node.parts.local_storage.stop(1))
        assert not node.runtime.files.exists(LOG_DIR)
    node = KraftNode(disk, seed=1, force_empty_metadata=True).start()
    node.join()
    node.stop()


def test_an_empty_directory_that_was_stopped_cleanly_starts(disk: FakeDisk) -> None:
    """Without a log of a topic there is nothing to lose."""
    KraftNode(disk).start().stop()
    lose_the_metadata(disk)
    node = KraftNode(disk, seed=1).start()
    node.join()
    node.stop()


def test_a_listener_that_raises_holds_up_nobody_else() -> None:
    """A plug-in may subscribe. Later steps and the listeners behind it go on, and its defect is logged."""
    node = KraftNode()

    def raises(image: ClusterImage, delta: ImageDelta) -> None:
        raise ZeroDivisionError

    node.metadata.subscribe(raises)
    node.start()
    node.join()
    assert node.create("one", "two") == [0, 0]
    assert [t.name for delta in node.deltas for t in delta.topics_created] == ["one", "two"]
    assert ("error", "a listener of the metadata image met a defect") in node.parts.events.told
