"""A voter's epoch and vote: told when they are on the device, found again after any death."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from blumfeld.log.checkpoints import MalformedFile
from blumfeld.log.quorum_state import FILE_NAME, QuorumState, decode_quorum_state
from blumfeld.spi.completion import Completion
from blumfeld.wire.batches.control_records import ControlType, control_type_of
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld.wire.batches.records import records
from blumfeld.wire.codec import decode
from blumfeld.wire.messages.raft_records import LeaderChangeMessage, VotersRecord, VotersRecordVoter
from blumfeld_consensus_kraft.quorum_state_file import QuorumStateFile
from blumfeld_consensus_kraft.voter import epoch_start
from blumfeld_kit.fakes.files import Fault
from tests.plugins.consensus_kraft.log_node import Deaths, LogNode

DIRECTORY = b"d" * 16


def static(epoch: int, voted_id: int = -1, leader_id: int = -1) -> QuorumState:
    """A state of ``kraft.version`` 0."""
    return QuorumState(
        leader_epoch=epoch,
        voted_id=voted_id,
        leader_id=leader_id,
        current_voters=(1, 2, 3),
        data_version=0,
    )


def dynamic(epoch: int, voted_id: int = -1, leader_id: int = -1) -> QuorumState:
    """A state of ``kraft.version`` 1."""
    directory = DIRECTORY if voted_id >= 0 else bytes(16)
    return QuorumState(
        leader_epoch=epoch, voted_id=voted_id, leader_id=leader_id, voted_directory_id=directory
    )


@pytest.fixture
def node() -> Iterator[LogNode]:
    """A voter with an empty log."""
    made = LogNode().start()
    yield made
    made.runtime.run_turn()


def file_of(node: LogNode) -> QuorumStateFile:
    """The node's file, as a start reads it."""
    return QuorumStateFile(node.runtime, node.raft.log.aux)


def on_disk(node: LogNode) -> QuorumState:
    """What the file says."""
    return decode_quorum_state(node.raft.log.aux.read(FILE_NAME) or b"")


@pytest.mark.parametrize("state", [static(5, voted_id=3), dynamic(7, voted_id=3), dynamic(8, leader_id=2)])
def test_a_vote_is_told_when_it_is_on_the_device(node: LogNode, state: QuorumState) -> None:
    """And the loop goes on meanwhile: a sync may take long."""
    quorum = file_of(node)
    node.runtime.offload_delay_ms = lambda: 50.0
    done = quorum.persist(state)
    node.runtime.advance(40)
    assert not done.done
    assert quorum.state != state
    node.runtime.advance(20)
    assert done.done
    assert quorum.state == state
    node.runtime.crash()
    assert file_of(LogNode(node.disk, seed=1).start()).state == state


def test_a_new_voter_has_voted_for_nobody(node: LogNode) -> None:
    assert file_of(node).state == QuorumState(data_version=0)


def test_what_is_on_the_device_is_not_written_again(node: LogNode) -> None:
    quorum = file_of(node)
    quorum.persist(static(3))
    node.runtime.advance(10)
    before = dict(node.disk.operations)
    assert quorum.persist(static(3)).done
    assert node.disk.operations == before


def test_a_later_state_takes_the_place_of_one_that_waits(node: LogNode) -> None:
    """Each is told when it, or a later one, is on the device."""
    quorum = file_of(node)
    node.runtime.offload_delay_ms = lambda: 10.0
    epochs: list[int] = []

    def persist(epoch: int) -> None:
        def then(_: Completion[None]) -> None:
            assert on_disk(node).leader_epoch >= epoch
            epochs.append(epoch)

        quorum.persist(static(epoch)).when_done(then)

    before = node.disk.operations.get("write_atomically", 0)
    persist(1)
    node.runtime.run_turn()
    for epoch in range(2, 6):
        persist(epoch)
    node.runtime.advance(15)
    assert epochs == [1]
    node.runtime.advance(50)
    assert epochs == [1, 2, 3, 4, 5]
    assert node.disk.operations["write_atomically"] - before == 2
    assert quorum.state == on_disk(node) == static(5)


def test_a_state_that_is_persisted_from_a_callback_is_written(node: LogNode) -> None:
    quorum = file_of(node)

    def again(_: Completion[None]) -> None:
        quorum.persist(static(2))

    quorum.persist(static(1)).when_done(again)
    node.runtime.advance(10)
    assert on_disk(node) == quorum.state == static(2)
    quorum.persist(static(3))
    node.runtime.advance(10)
    assert on_disk(node) == static(3)


@pytest.mark.parametrize("operation", ["write_atomically", "write_atomically:fdatasync"])
def test_a_failure_is_told_and_the_next_state_is_written(node: LogNode, operation: str) -> None:
    quorum = file_of(node)
    node.disk.inject(Fault(operation=operation, path_part=FILE_NAME, error_number=28))
    lost = quorum.persist(static(1))
    node.runtime.offload_delay_ms = lambda: 1.0
    node.runtime.run_turn()
    kept = quorum.persist(static(2))
    assert not lost.done
    node.runtime.advance(10)
    assert isinstance(lost.error, OSError)
    assert kept.done
    assert kept.error is None
    assert on_disk(node) == static(2)


def test_a_state_that_failed_may_be_persisted_again(node: LogNode) -> None:
    quorum = file_of(node)
    node.disk.inject(Fault(operation="write_atomically", path_part=FILE_NAME))
    lost = quorum.persist(static(1, voted_id=2))
    node.runtime.advance(10)
    assert lost.error is not None
    assert quorum.state == QuorumState(data_version=0)
    again = quorum.persist(static(1, voted_id=2))
    node.runtime.advance(10)
    assert again.error is None
    assert on_disk(node) == static(1, voted_id=2)


def test_a_file_that_can_not_be_read_ends_the_start(node: LogNode) -> None:
    """A voter that forgot its vote could vote twice in one epoch."""
    node.raft.log.aux.write(FILE_NAME, b'{"leaderId":1')
    with pytest.raises(MalformedFile, match="quorum-state"):
        file_of(node)


def test_a_death_in_the_middle_of_a_vote() -> None:
    """What was told is remembered, or something later; nothing that was never asked for is there."""
    states = [static(1, voted_id=2), static(1, leader_id=2), dynamic(4, voted_id=3), dynamic(5)]
    numbers: list[int] = []

    def tell(number: int, done: Completion[None]) -> None:
        if done.error is None:
            numbers.append(number)

    def story(node: LogNode) -> None:
        numbers.clear()
        quorum = file_of(node)
        for number, state in enumerate(states):
            quorum.persist(state).when_done(partial(tell, number))
            if number != 2:  # the third and the fourth are asked for together
                node.runtime.advance(5)

    deaths = Deaths(lambda node: None, story)
    for _, again, where in deaths:
        kept_state = file_of(again).state
        possible = [QuorumState(data_version=0), *states]
        assert kept_state in possible, where
        assert possible.index(kept_state) > max(numbers, default=-1), where
    assert deaths.count >= 60


def test_an_epoch_begins_with_its_leader() -> None:
    """With the voters where a first leader of ``kraft.version`` 1 brings them into the log."""
    voters = VotersRecord(voters=[VotersRecordVoter(voter_id=1, voter_directory_id=DIRECTORY)])
    for kraft_version in (0, 1):
        data = epoch_start(
            7, 2, (1, 2, 3), (2, 3), timestamp_ms=9, kraft_version=kraft_version, voters=voters
        )
        batch = RecordBatch(memoryview(data))
        batch.verify_crc()
        assert batch.partition_leader_epoch == 7
        all_records = list(records(batch))
        change = decode(LeaderChangeMessage, all_records[0].value or b"", 0)
        assert change.leader_id == 2
        assert [voter.voter_id for voter in change.voters] == [1, 2, 3]
        assert [voter.voter_id for voter in change.granting_voters] == [2, 3]
        kinds = [control_type_of(record.key) for record in all_records[1:]]
        assert kinds == ([ControlType.KRAFT_VERSION, ControlType.KRAFT_VOTERS] if kraft_version else [])
