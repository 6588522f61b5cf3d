"""A full disk costs batches and checkpoints, and no replica stays offline for it once there is room."""

from __future__ import annotations

import errno

import pytest

from blumfeld.broker.replicas.hosting.partition_manager import REOPEN_MS
from blumfeld.log.leader_epochs import FILE_NAME as EPOCHS
from blumfeld.wire.errors import ErrorCode
from blumfeld_storage_local.storage import LocalStorage
from tests.broker.batches import batch, fetch
from tests.broker.harness import BrokerHarness, Quiet, failing

NO_ROOM = OSError(errno.ENOSPC, "no space left")


@pytest.fixture
def broker() -> BrokerHarness:
    return BrokerHarness(make_storage=lambda runtime: LocalStorage(runtime, "/data", Quiet()), partitions=1)


def fetched(broker: BrokerHarness) -> ErrorCode:
    return ErrorCode(broker.ask(fetch(), 11).responses[0].partitions[0].error_code)


def epochs_on_disk(broker: BrokerHarness) -> bytes | None:
    return broker.hosted().log.aux.read(EPOCHS)


def test_the_first_batch_of_an_epoch_needs_no_room_for_the_file_of_epochs(broker: BrokerHarness) -> None:
    disk = broker.runtime.disk
    assert broker.produced() == ErrorCode.NONE
    broker.change_partition(epoch=5)
    disk.room = len(batch()) + 1
    assert broker.produced() == ErrorCode.NONE
    assert broker.produced() == ErrorCode.KAFKA_STORAGE_ERROR
    broker.runtime.advance(5_000)
    assert fetched(broker) == ErrorCode.NONE
    disk.room = None
    broker.runtime.advance(1_100)
    assert broker.produced() == ErrorCode.NONE
    assert epochs_on_disk(broker) == b"0\n2\n0 0\n5 1\n"


@pytest.mark.parametrize("error_number", [errno.ENOSPC, errno.EMFILE])
def test_a_read_that_lacks_something_costs_that_request_alone(
    broker: BrokerHarness, monkeypatch: pytest.MonkeyPatch, error_number: int
) -> None:
    assert broker.produced() == ErrorCode.NONE
    with monkeypatch.context() as lacking:
        lacking.setattr(broker.hosted().log, "read", failing(OSError(error_number, "nothing left")))
        assert fetched(broker) == ErrorCode.KAFKA_STORAGE_ERROR
    assert fetched(broker) == ErrorCode.NONE
    assert broker.produced() == ErrorCode.NONE


def test_records_are_deleted_on_a_full_disk(broker: BrokerHarness) -> None:
    """It is how an operator makes room."""
    for epoch in (1, 2, 3):
        broker.change_partition(epoch=epoch)
        assert broker.produced() == ErrorCode.NONE
    broker.runtime.disk.room = 0
    broker.hosted().advance_log_start(2)
    broker.runtime.advance(5_000)
    assert fetched(broker) == ErrorCode.OFFSET_OUT_OF_RANGE
    broker.runtime.disk.room = None
    assert broker.produced() == ErrorCode.NONE
    broker.runtime.advance(1_100)
    assert epochs_on_disk(broker) == b"0\n1\n3 2\n"


def test_a_log_whose_change_was_broken_off_is_opened_again(broker: BrokerHarness) -> None:
    assert broker.produced() == ErrorCode.NONE
    broker.runtime.disk.room = 0
    broker.hosted().fail(NO_ROOM)
    assert broker.produced() == ErrorCode.KAFKA_STORAGE_ERROR
    broker.runtime.advance(3 * REOPEN_MS)
    broker.runtime.disk.room = None
    broker.runtime.advance(2 * REOPEN_MS)
    assert broker.hosted().high_watermark == 1
    assert broker.produced() == ErrorCode.NONE
    assert broker.hosted().high_watermark == 2


def test_a_log_on_a_bad_disk_is_not_opened_again(broker: BrokerHarness) -> None:
    broker.hosted().fail(OSError(errno.EIO, "bad sector"))
    broker.runtime.advance(10 * REOPEN_MS)
    assert broker.produced() == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_topic_that_is_deleted_before_its_log_is_opened_again_stays_away(broker: BrokerHarness) -> None:
    broker.hosted().fail(NO_ROOM)
    broker.metadata.delete_topic("t")
    broker.runtime.advance(10 * REOPEN_MS)
    assert broker.broker.partitions.find("t", 0) is None
    assert broker.composition.storage.log_dirs()[0].online


def test_the_events_of_many_logs_without_room_are_few() -> None:
    broker = BrokerHarness()
    broker.storage.refuse_to_open = NO_ROOM
    broker.create_topic("many", 50)
    broker.runtime.advance(30_000)
    assert 0 < len(broker.log.events) < 10


def test_a_stop_on_a_full_disk_closes_every_log(broker: BrokerHarness) -> None:
    assert broker.produced() == ErrorCode.NONE
    broker.runtime.disk.room = 0
    partition = broker.hosted()
    broker.stop()
    assert not partition.log.is_open  # type: ignore[attr-defined]
    assert [event for level, event, _ in broker.log.events if level == "error"] == []
