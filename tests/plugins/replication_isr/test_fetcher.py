"""The driver of a fetcher: requests that leave, bytes that go to the logs, pauses, and partitions that fail alone."""

from __future__ import annotations

import errno
from types import SimpleNamespace
from typing import Any, cast

import pytest

from blumfeld.config.values import BrokerConfig
from blumfeld.spi.cluster import BrokerImage, PartitionImage
from blumfeld.spi.completion import Completion
from blumfeld.spi.hooks import Composition
from blumfeld.spi.leader_epochs import EpochEnd
from blumfeld.spi.peers import RawAnswer
from blumfeld.spi.replication_quota import ReplicationQuota
from blumfeld.spi.storage import TopicPartition
from blumfeld.wire.codec import encode
from blumfeld.wire.errors import BrokerError, CorruptBatch, ErrorCode
from blumfeld.wire.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from blumfeld.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from blumfeld.wire.schema import Message
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_replication_isr import replication
from blumfeld_replication_isr.replication import IsrReplication
from tests.broker.harness import Quiet

TOPIC_ID = b"t" * 16
VERSION = 17
OWN_EPOCH = 101
LEADER = 2
CONFIG = {
    "replica.fetch.max.bytes": 1_111,
    "replica.fetch.response.max.bytes": 2_222,
    "replica.fetch.min.bytes": 3,
    "replica.fetch.wait.max.ms": 444,
    "replica.fetch.backoff.ms": 700,
    "replica.socket.timeout.ms": 5_000,
}


class Log:
    """``FollowerHost`` and its log: an end, and what was appended."""

    def __init__(self, driver: Driver, index: int, end: int) -> None:
        self.partition = TopicPartition("t", index)
        self.topic_id = TOPIC_ID
        self.log = cast("Any", SimpleNamespace(placed_end_offset=end, log_start_offset=0))
        self.latest_epoch = 1 if end else -1
        self.high_watermark = 0
        self.quota: ReplicationQuota | None = None
        self.ours = EpochEnd(-1, -1)
        self.appended: list[tuple[memoryview, int, int]] = []
        self.truncated: list[int] = []
        self.restarted: list[int] = []
        self.fails: Exception | None = None
        self.rebuilt: Completion[None] | None = None
        """Completes the next truncation; ``None``: it is done at once."""
        self.follower: Any = None
        self._driver = driver

    def epoch_end(self, epoch: int) -> EpochEnd:
        return self.ours

    def append_fetched(self, batches: memoryview, high_watermark: int, log_start_offset: int) -> bool:
        if self.fails is not None:
            raise self.fails
        self.appended.append((batches, high_watermark, log_start_offset))
        self.log.placed_end_offset += len(batches)
        return bool(batches)

    def truncate_to(self, offset: int) -> Completion[None]:
        self.truncated.append(offset)
        if self.fails is not None:
            raise self.fails
        self.log.placed_end_offset = offset
        return self.rebuilt or Completion.of(None)

    def restart_at(self, offset: int) -> None:
        self.restarted.append(offset)
        self.log.placed_end_offset = self.log.log_start_offset = offset

    def write(self) -> None:
        """End the write of what was appended."""
        self.follower.written(self.log.placed_end_offset)


class Channel:
    """``PeerChannel`` that keeps the requests until the test answers."""

    def __init__(self) -> None:
        self.sent: list[tuple[Message, Completion[Any]]] = []
        self.timeouts: list[float] = []
        self.closed = 0

    def send(self, request: Message, timeout_ms: float, version_max: int | None = None) -> Completion[Any]:
        answer: Completion[Any] = Completion()
        self.sent.append((request, answer))
        self.timeouts.append(timeout_ms)
        return answer

    send_raw = send

    def close(self) -> None:
        self.closed += 1
        for _, answer in self.sent:
            if not answer.done:
                answer.fail(ConnectionError("closed"))


class Driver:
    """The plug-in on virtual time, with the leader's side in the test's hands."""

    def __init__(self, *ends: int, config: dict[str, Any] | None = None) -> None:
        self.runtime = FakeRuntime()
        self.channels: dict[tuple[int, str, str], Channel] = {}
        self.events = Quiet()
        self.brokers = {
            LEADER: BrokerImage(broker_id=LEADER, epoch=7, incarnation_id=bytes(16), endpoints=())
        }
        self.replication = IsrReplication(
            cast(
                "Composition",
                SimpleNamespace(
                    runtime=self.runtime,
                    config=BrokerConfig(CONFIG | (config or {})),
                    metadata=SimpleNamespace(image=SimpleNamespace(brokers=self.brokers)),
                    node_id=1,
                    membership=SimpleNamespace(broker_epoch=OWN_EPOCH),
                    peers=self,
                    listeners=[
                        SimpleNamespace(name="OUTSIDE", inter_broker=False),
                        SimpleNamespace(name="INSIDE", inter_broker=True),
                    ],
                    log=lambda name: self.events,
                ),
            )
        )
        self.logs = [Log(self, index, end) for index, end in enumerate(ends)]
        for log in self.logs:
            self.follow(log)
        self.turn()

    def channel(self, node_id: int, listener: str, purpose: str) -> Channel:
        return self.channels.setdefault((node_id, listener, purpose), Channel())

    @property
    def only(self) -> Channel:
        (channel,) = self.channels.values()
        return channel

    def follow(self, log: Log, epoch: int = 4, leader: int = LEADER) -> None:
        image = PartitionImage(
            partition=log.partition.partition,
            replicas=(1, 2),
            isr=(2,),
            leader=leader,
            leader_epoch=epoch,
            partition_epoch=0,
        )
        log.follower = self.replication.become_follower(cast("Any", log), image)

    def turn(self) -> None:
        self.runtime.run_turn()

    def asked(self, count: int | None = None) -> FetchRequest:
        """The newest fetch. :param count: number of requests so far"""
        sent = self.only.sent
        if count is not None:
            assert len(sent) == count, [type(request).__name__ for request, _ in sent]
        request = sent[-1][0]
        assert isinstance(request, FetchRequest)
        return request

    def places(self) -> dict[int, int]:
        """Partition → fetch offset of the newest fetch."""
        return {p.partition: p.fetch_offset for topic in self.asked().topics for p in topic.partitions}

    def answer(
        self, *parts: PartitionData, code: int = 0, session: int = 9, version: int = VERSION
    ) -> memoryview:
        """Answer the newest fetch. Returns the frame."""
        topics = [FetchableTopicResponse(topic_id=TOPIC_ID, partitions=list(parts))] if parts else []
        response = FetchResponse(error_code=code, session_id=session, responses=topics)
        frame = memoryview(encode(response, version))

        def arrive() -> None:
            self.only.sent[-1][1].complete(RawAnswer(frame, version))

        self.runtime.call_later(0, arrive)
        self.turn()
        return frame

    def said(self) -> list[tuple[str, Any]]:
        """Partition and error code of each warning."""
        return [
            (values.get("partition", ""), values.get("error_code"))
            for level, _, values in self.events.events
            if level == "warning"
        ]


def data(index: int, records: bytes = b"", *, code: int = 0, **more: Any) -> PartitionData:
    return PartitionData(
        partition_index=index,
        error_code=code,
        high_watermark=50,
        log_start_offset=2,
        aborted_transactions=None,
        records=records,
        **more,
    )


def test_the_first_request_names_everything() -> None:
    driver = Driver(10, 20)
    request = driver.asked(1)
    assert list(driver.channels) == [(LEADER, "INSIDE", "fetch-0")]
    assert driver.only.timeouts == [5_000]
    assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == (1, OWN_EPOCH)
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (444, 3, 2_222)
    assert (request.session_id, request.session_epoch) == (0, 0)
    (topic,) = request.topics
    assert topic.topic_id == TOPIC_ID
    assert [
        (p.partition, p.fetch_offset, p.current_leader_epoch, p.last_fetched_epoch, p.partition_max_bytes)
        for p in topic.partitions
    ] == [(0, 10, 4, 1, 1_111), (1, 20, 4, 1, 1_111)]


def test_the_bytes_of_the_frame_go_to_the_log_without_a_copy() -> None:
    driver = Driver(10, 20)
    frame = driver.answer(data(0, b"abc"), data(1))
    ((batches, high_watermark, log_start),) = driver.logs[0].appended
    assert (bytes(batches), high_watermark, log_start) == (b"abc", 50, 2)
    assert batches.obj is frame.obj
    assert [bytes(entry[0]) for entry in driver.logs[1].appended] == [b""], (
        "high watermark and log start arrive"
    )


def test_the_next_request_leaves_when_all_is_written() -> None:
    driver = Driver(10, 20)
    driver.answer(data(0, b"abc"), data(1, b"de"))
    driver.logs[1].write()
    driver.turn()
    driver.asked(1)
    driver.logs[0].write()
    driver.turn()
    request = driver.asked(2)
    assert (request.session_id, request.session_epoch) == (9, 1)
    assert driver.places() == {0: 13, 1: 22}


def test_an_earlier_write_acknowledges_nothing() -> None:
    driver = Driver(10)
    driver.answer(data(0, b"abc"))
    driver.logs[0].follower.written(11)
    driver.turn()
    driver.asked(1)


def test_a_partition_that_fails_waits_alone() -> None:
    driver = Driver(10, 20)
    driver.answer(data(0, code=ErrorCode.KAFKA_STORAGE_ERROR), data(1, b"de"))
    driver.logs[1].write()
    driver.turn()
    request = driver.asked(2)
    assert driver.places() == {1: 22}
    assert [gone.partitions for gone in request.forgotten_topics_data] == [[0]]
    assert request.max_wait_ms == 444
    driver.runtime.advance(500)
    driver.answer()
    assert driver.asked(3).max_wait_ms == 200, (
        "it must not wait at the leader for longer than the pause lasts"
    )
    driver.runtime.advance(200)
    driver.answer()
    driver.asked(4)
    assert driver.places() == {0: 10}


@pytest.mark.parametrize("error", [CorruptBatch("bad CRC"), ValueError("a defect")])
def test_batches_that_the_log_refuses_cost_one_partition_a_pause(error: Exception) -> None:
    driver = Driver(10, 20)
    driver.logs[0].fails = error
    driver.answer(data(0, b"abc"), data(1, b"de"))
    driver.logs[1].write()
    driver.turn()
    assert driver.places() == {1: 22}
    (event,) = [entry for entry in driver.events.events if entry[0] == "error"]
    assert event[2]["partition"] == "t-0"
    driver.logs[0].fails = None
    driver.answer()
    driver.runtime.advance(701)
    driver.answer()
    assert driver.places() == {0: 10}


def test_a_write_that_fails_is_fetched_again_after_a_pause() -> None:
    driver = Driver(10)
    driver.answer(data(0, b"abc"))
    driver.logs[0].log.placed_end_offset = 10
    driver.logs[0].follower.append_failed(10, OSError(errno.ENOSPC, "no space left"))
    driver.turn()
    driver.asked(1)
    driver.runtime.advance(699)
    driver.asked(1)
    driver.runtime.advance(2)
    driver.asked(2)
    assert driver.places() == {}, "the session has it at this offset already"


def test_a_diverging_log_is_truncated_and_asked_about_again() -> None:
    driver = Driver(10, 20)
    log = driver.logs[0]
    log.ours, log.rebuilt = EpochEnd(3, 8), Completion()
    driver.answer(data(0, diverging_epoch=EpochEndOffset(epoch=3, end_offset=6)), data(1))
    assert (log.truncated, log.appended) == ([6], [])
    assert driver.places() == {1: 20}, "a full request: the leader must tell its high watermark once more"
    log.rebuilt.complete(None)
    driver.turn()
    driver.asked(2)
    driver.answer(data(1))
    driver.asked(3)
    assert driver.places() == {0: 6}


def test_no_request_waits_long_at_the_leader_while_a_log_is_truncated() -> None:
    """A leader that was elected in place of this one: acks=all there waits for the first fetch behind the truncation,
    and the other partition may have no records for half a second."""
    driver = Driver(10, 20)
    log = driver.logs[0]
    log.ours, log.rebuilt = EpochEnd(3, 8), Completion()
    driver.answer(data(0, diverging_epoch=EpochEndOffset(epoch=3, end_offset=6)), data(1))
    assert driver.asked(2).max_wait_ms == 10
    log.rebuilt.complete(None)
    driver.turn()
    driver.answer(data(1))
    assert driver.places() == {0: 6}
    assert driver.asked(3).max_wait_ms == CONFIG["replica.fetch.wait.max.ms"]


def test_a_log_without_epochs_begins_at_its_high_watermark() -> None:
    driver = Driver()
    log = Log(driver, 0, 10)
    log.latest_epoch, log.high_watermark = -1, 7
    driver.follow(log)
    assert log.truncated == [], "its host may not be called in the turn of its making"
    driver.turn()
    assert log.truncated == [7]
    driver.asked(1)
    assert driver.places() == {0: 7}


def looked_up(driver: Driver, start: int, end: int, code: int = 0) -> None:
    for (request, answer), offset in zip(driver.only.sent[-2:], (start, end), strict=True):
        assert isinstance(request, ListOffsetsRequest)
        assert request.replica_id == 1
        (query,) = request.topics[0].partitions
        assert query.current_leader_epoch == 4
        partition_answer = ListOffsetsPartitionResponse(
            partition_index=query.partition_index, offset=offset, error_code=code
        )
        answer.complete(
            ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[partition_answer])])
        )
    driver.turn()


def out_of_range(driver: Driver) -> None:
    driver.answer(data(0, code=ErrorCode.OFFSET_OUT_OF_RANGE))


def test_below_the_leaders_log_it_begins_anew() -> None:
    driver = Driver(10)
    out_of_range(driver)
    looked_up(driver, 30, 40)
    assert driver.logs[0].restarted == [30]
    assert driver.places() == {0: 30}


def test_beyond_the_leaders_end_it_is_truncated() -> None:
    driver = Driver(10)
    out_of_range(driver)
    looked_up(driver, 0, 8)
    assert driver.logs[0].truncated == [8]
    assert driver.places() == {0: 8}


def test_a_look_up_that_fails_is_tried_again_later() -> None:
    driver = Driver(10)
    out_of_range(driver)
    looked_up(driver, 0, 8, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert len(driver.only.sent) == 3
    assert driver.events.events == []
    driver.runtime.advance(701)
    driver.asked(4)
    assert driver.logs[0].truncated == []


def test_a_look_up_that_is_refused_is_told_once() -> None:
    driver = Driver(10)
    out_of_range(driver)
    looked_up(driver, 0, 8, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert driver.said() == [("t-0", ErrorCode.TOPIC_AUTHORIZATION_FAILED)]


def test_a_look_up_without_an_answer_is_told_once() -> None:
    driver = Driver(10)
    out_of_range(driver)
    for _, answer in driver.only.sent[-2:]:
        answer.fail(BrokerError(ErrorCode.UNSUPPORTED_VERSION))
    driver.turn()
    ((level, event, values),) = driver.events.events
    assert (level, values["leader"]) == ("warning", LEADER)
    assert "ListOffsets" in event
    assert "UNSUPPORTED_VERSION" in values["error"]
    driver.runtime.advance(699)
    assert len(driver.only.sent) == 3
    driver.runtime.advance(2)
    driver.asked(4)


def test_out_of_range_with_nothing_to_mend_is_asked_again_after_a_pause() -> None:
    """A leader that contradicts itself would be asked the same as fast as it answers."""
    driver = Driver(10)
    out_of_range(driver)
    looked_up(driver, 0, 20)
    assert len(driver.only.sent) == 3
    driver.runtime.advance(699)
    assert len(driver.only.sent) == 3
    driver.runtime.advance(2)
    driver.asked(4)
    assert (driver.logs[0].truncated, driver.logs[0].restarted) == ([], [])


def test_a_defect_in_the_mend_of_one_log_holds_up_no_other() -> None:
    driver = Driver(10, 20)
    broken, sound = driver.logs
    broken.fails = RuntimeError("a defect")
    driver.answer(*(data(index, code=ErrorCode.OFFSET_OUT_OF_RANGE) for index in (0, 1)))
    for (request, answer), offset in zip(driver.only.sent[-2:], (0, 8), strict=True):
        assert isinstance(request, ListOffsetsRequest)
        partition_answers = [
            ListOffsetsPartitionResponse(partition_index=index, offset=offset) for index in (0, 1)
        ]
        answer.complete(
            ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=partition_answers)])
        )
    driver.turn()
    assert (broken.truncated, sound.truncated) == ([8], [8])
    assert driver.places() == {1: 8}
    ((_, _, values),) = [entry for entry in driver.events.events if entry[0] == "error"]
    assert values["partition"] == "t-0"
    broken.fails = None
    driver.answer()
    driver.runtime.advance(701)
    driver.answer()
    assert driver.places() == {0: 10}


@pytest.mark.parametrize("error", [RuntimeError("a defect"), BrokerError(ErrorCode.KAFKA_STORAGE_ERROR)])
def test_a_follower_that_can_not_begin_holds_up_no_other(error: Exception) -> None:
    driver = Driver()
    broken, sound = Log(driver, 0, 10), Log(driver, 1, 20)
    broken.latest_epoch, broken.high_watermark, broken.fails = -1, 7, error
    driver.follow(broken)
    driver.follow(sound)
    driver.turn()
    assert driver.places() == {1: 20}
    broken.fails = None
    driver.runtime.advance(701)
    driver.answer()
    assert driver.places() == {0: 10, 1: 20}


def test_a_follower_that_another_one_takes_along_does_not_begin() -> None:
    """All partitions of a disk stop when it fails."""
    driver = Driver()
    broken, other, sound = (Log(driver, index, 10) for index in range(3))
    broken.latest_epoch, broken.high_watermark = -1, 7

    def failing(_offset: int) -> Completion[None]:
        broken.follower.stop()
        other.follower.stop()
        raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR)

    cast("Any", broken).truncate_to = failing
    for log in (broken, other, sound):
        driver.follow(log)
    driver.turn()
    assert driver.places() == {2: 10}
    driver.answer()
    driver.runtime.advance(701)
    driver.answer()
    driver.asked(3)
    assert not {0, 1} & driver.places().keys()


def test_a_fenced_partition_waits_for_the_image() -> None:
    driver = Driver(10, 20)
    driver.answer(data(0, code=ErrorCode.FENCED_LEADER_EPOCH))
    driver.answer()
    driver.runtime.advance(10_000)
    assert [p.partition for t in driver.asked().topics for p in t.partitions] == []
    log = driver.logs[0]
    log.follower.update(log.follower.image)
    driver.answer()
    assert driver.places() == {0: 10}


def test_an_answer_to_an_earlier_epoch_changes_nothing() -> None:
    driver = Driver(10)
    log = driver.logs[0]
    log.follower.stop()
    driver.follow(log, epoch=5)
    driver.answer(data(0, b"abc"))
    assert log.appended == []
    assert driver.asked(2).session_epoch == 0, "the leader must tell its high watermark once more"
    assert driver.places() == {0: 10}


def test_without_an_answer_it_pauses_and_begins_a_session() -> None:
    driver = Driver(10)
    driver.answer(session=9)
    driver.only.sent[-1][1].fail(ConnectionError("refused"))
    driver.turn()
    driver.asked(2)
    driver.runtime.advance(699)
    driver.asked(2)
    driver.runtime.advance(2)
    assert driver.asked(3).session_epoch == 0
    assert driver.places() == {0: 10}
    driver.only.sent[-1][1].fail(ConnectionError("refused"))
    driver.runtime.advance(701)
    driver.asked(4)
    assert len(driver.events.events) == 1, "told once until the leader answers"


def test_garbage_is_no_answer() -> None:
    driver = Driver(10)
    driver.only.sent[-1][1].complete(RawAnswer(memoryview(b"garbage"), VERSION))
    driver.turn()
    driver.asked(1)
    driver.runtime.advance(699)
    driver.asked(1)
    driver.runtime.advance(2)
    assert driver.asked(2).session_epoch == 0
    assert driver.places() == {0: 10}


def test_a_leader_that_is_too_old_is_asked_after_pauses_and_told_once() -> None:
    driver = Driver(10)
    for number in (1, 2, 3):
        driver.asked(number)
        driver.only.sent[-1][1].fail(BrokerError(ErrorCode.UNSUPPORTED_VERSION))
        driver.turn()
        driver.runtime.advance(699)
        driver.asked(number)
        driver.runtime.advance(2)
    driver.asked(4)
    ((level, _, values),) = driver.events.events
    assert (level, values["leader"]) == ("warning", LEADER)
    assert "UNSUPPORTED_VERSION" in values["error"]


def test_a_refused_fetch_is_told_once() -> None:
    driver = Driver(10)
    for _ in range(3):
        driver.answer(code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        driver.runtime.advance(701)
    driver.asked(4)
    assert driver.said() == [("", ErrorCode.CLUSTER_AUTHORIZATION_FAILED)]
    assert "CLUSTER_AUTHORIZATION_FAILED" in driver.events.events[0][2]["error"]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        999,  # of a newer release
    ],
)
def test_a_refused_partition_is_told_once_for_each_partition(code: int) -> None:
    driver = Driver(10, 20)
    for _ in range(3):
        driver.answer(data(0, code=code), data(1, code=code))
        driver.runtime.advance(701)
    assert driver.said() == [("t-0", code), ("t-1", code)]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ],
)
def test_an_error_that_passes_by_itself_is_not_told(code: ErrorCode) -> None:
    driver = Driver(10)
    driver.answer(data(0, code=code))
    driver.runtime.advance(701)
    driver.asked(2)
    assert driver.events.events == []


def test_a_leader_that_does_not_know_of_its_epoch_is_asked_again_soon() -> None:
    driver = Driver(10)
    requests = 1
    for pause_ms in (10, 20, 40, 80, 160, 320, 640, 700, 700):
        driver.answer(data(0, code=ErrorCode.UNKNOWN_LEADER_EPOCH))
        driver.runtime.advance(pause_ms - 1)
        driver.asked(requests)
        driver.runtime.advance(2)
        requests += 1
        driver.asked(requests)


def test_an_answer_with_records_ends_the_growth_of_pauses() -> None:
    driver = Driver(10)
    for _ in range(4):
        driver.answer(data(0, code=ErrorCode.UNKNOWN_LEADER_EPOCH))
        driver.runtime.advance(701)
    driver.answer(data(0, b"abc"))
    driver.logs[0].write()
    driver.turn()
    driver.answer(data(0, code=ErrorCode.NOT_LEADER_OR_FOLLOWER))
    driver.asked(6)
    driver.runtime.advance(11)
    driver.asked(7)


def test_a_lost_session_begins_again_at_once_but_not_for_ever() -> None:
    driver = Driver(10)
    driver.answer(code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    driver.asked(2)
    driver.answer(code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    driver.asked(2)
    driver.runtime.advance(701)
    driver.asked(3)


def test_partitions_are_spread_over_fetchers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replication, "FETCHER_PARTITIONS_MAX", 2)
    driver = Driver(*([5] * 7), config={"num.replica.fetchers": 2})
    counts = {
        purpose: len(cast("FetchRequest", channel.sent[0][0]).topics[0].partitions)
        for (_, _, purpose), channel in driver.channels.items()
    }
    assert counts == {"fetch-0": 2, "fetch-1": 2, "fetch-2": 2, "fetch-3": 1}


def test_a_fetcher_without_partitions_is_closed_after_a_while() -> None:
    driver = Driver(10)
    driver.logs[0].follower.stop()
    driver.runtime.advance(9_000)
    driver.follow(driver.logs[0], epoch=5)
    driver.turn()
    driver.runtime.advance(9_000)
    assert driver.only.closed == 0
    driver.logs[0].follower.stop()
    driver.runtime.advance(9_000)
    assert driver.only.closed == 0, "the time counts from when it became empty last"
    driver.runtime.advance(2_000)
    assert driver.only.closed == 1
    driver.runtime.advance(20_000)
    assert driver.only.closed == 1


def test_a_fetcher_that_is_empty_twice_is_closed_once_after_the_whole_time() -> None:
    driver = Driver(10)
    driver.logs[0].follower.stop()
    driver.runtime.advance(8_500)
    driver.follow(driver.logs[0], epoch=5)
    driver.logs[0].follower.stop()
    driver.runtime.advance(9_900)
    assert driver.only.closed == 0
    driver.runtime.advance(200)
    assert driver.only.closed == 1


def test_the_connection_to_a_leaders_earlier_process_is_closed() -> None:
    driver = Driver(10)
    driver.logs[0].follower.stop()
    driver.brokers[LEADER] = BrokerImage(broker_id=LEADER, epoch=8, incarnation_id=bytes(16), endpoints=())
    driver.follow(driver.logs[0], epoch=5)
    driver.turn()
    assert driver.only.closed == 1
    assert driver.asked(2).session_epoch == 0, "the new process is there, so it is asked at once"
    assert driver.events.events == [], "the connection was closed on purpose"
    driver.only.sent[-1][1].fail(ConnectionError("refused"))
    driver.turn()
    driver.asked(2)
    assert len(driver.events.events) == 1, "the new process doesn't answer"


def test_a_pause_ends_with_the_leaders_new_process() -> None:
    driver = Driver(10)
    driver.only.sent[-1][1].fail(ConnectionError("refused"))
    driver.turn()
    driver.asked(1)
    driver.brokers[LEADER] = BrokerImage(broker_id=LEADER, epoch=8, incarnation_id=bytes(16), endpoints=())
    driver.logs[0].follower.stop()
    driver.follow(driver.logs[0], epoch=5)
    driver.turn()
    driver.asked(2)


def test_a_look_up_at_the_leaders_earlier_process_is_no_answer_of_the_new_one() -> None:
    driver = Driver(10, 20)
    out_of_range(driver)
    driver.brokers[LEADER] = BrokerImage(broker_id=LEADER, epoch=8, incarnation_id=bytes(16), endpoints=())
    driver.logs[1].follower.stop()
    driver.follow(driver.logs[1], epoch=5)
    driver.turn()
    assert driver.places() == {0: 10, 1: 20}
    assert driver.events.events == []


@pytest.mark.parametrize("looking_up", [False, True])
def test_after_a_stop_nothing_is_sent_or_appended(looking_up: bool) -> None:
    driver = Driver(10)
    if looking_up:
        out_of_range(driver)
    sent = len(driver.only.sent)
    driver.runtime.run(driver.replication.stop())
    driver.runtime.advance(20_000)
    assert len(driver.only.sent) == sent
    assert driver.logs[0].appended == []
    assert driver.events.events == []


@pytest.mark.parametrize(
    "error", [BrokerError(ErrorCode.KAFKA_STORAGE_ERROR), RuntimeError("a defect"), None]
)
def test_a_host_that_was_stopped_is_left_alone(error: Exception | None) -> None:
    driver = Driver(10, 20)
    log = driver.logs[0]

    def failing(*_: Any) -> bool:
        log.follower.stop()  # as the partition does when its disk fails
        if error is not None:
            raise error
        return True

    cast("Any", log).append_fetched = failing
    driver.answer(data(0, b"abc"), data(1, b"de"))
    driver.logs[1].write()
    driver.turn()
    assert driver.places() == {1: 22}
    driver.runtime.advance(701)
    driver.answer()
    request = driver.asked(3)
    assert 0 not in driver.places()
    assert request.session_epoch > 0, "nothing of it is missed any more"
    log.follower.written(13)
    log.follower.append_failed(10, OSError(errno.EIO, "failed"))
    driver.runtime.advance(701)
    driver.answer()
    assert 0 not in driver.places()


def test_an_answer_for_a_partition_that_nobody_follows_takes_it_out() -> None:
    driver = Driver(10, 20)
    (fetcher,) = cast("Any", driver.replication)._fetchers.values()
    driver.logs[0].follower.stop()
    fetcher.rules.add(driver.logs[0].follower.key, driver.logs[0].follower.position())
    driver.answer(data(0, b"abc"), data(1))
    assert driver.places() == {1: 20}
