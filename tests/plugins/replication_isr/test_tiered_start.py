"""A follower whose leader has the next records in a remote store alone: it begins at the leader's local log start."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import EntryPoint
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from blumfeld.plugging.registry import GROUP
from blumfeld.spi.completion import Completion
from blumfeld.spi.hooks import Composition, hookimpl
from blumfeld.spi.leader_epochs import EpochEnd, EpochEntry
from blumfeld.spi.storage import LogStorage
from blumfeld.spi.tiering import LogStartState, local_log_start_offset
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.fetch import EpochEndOffset as DivergingEpoch
from blumfeld.wire.messages.fetch import FetchRequest
from blumfeld.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from blumfeld.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from blumfeld_kit.fakes.tiered_storage import FakeTieredStorage, RemoteStore, tiered_log
from tests.plugins.replication_isr.test_fetcher import Driver, Log, data
from tests.plugins.replication_isr.three_nodes import ThreeNodes

STATE = LogStartState(offset=30, epochs=(EpochEntry(0, 0), EpochEntry(3, 20)), producers=b"producers")
MOVED = ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE


class TieredHost(Log):
    """A follower's host with a tiered log."""

    def __init__(self, driver: Driver, end: int, *, local_start: int = 0) -> None:
        super().__init__(driver, 0, end)
        self.began: list[tuple[int, Sequence[EpochEntry], bytes | None, int | None]] = []
        self.asked: list[tuple[int, int]] = []
        self.state: Completion[LogStartState] = Completion()
        self.log = cast(
            "Any",
            SimpleNamespace(
                placed_end_offset=end,
                log_start_offset=0,
                local_log_start_offset=local_start,
                state_at=self._state_at,
            ),
        )

    def _state_at(self, offset: int, leader_epoch: int) -> Completion[LogStartState]:
        self.asked.append((offset, leader_epoch))
        return self.state

    def truncate_to(self, offset: int) -> Completion[None]:
        self.log.local_log_start_offset = min(self.log.local_log_start_offset, offset)
        return super().truncate_to(offset)

    def restart_at(
        self,
        offset: int,
        epochs: Sequence[EpochEntry] = (),
        producers: bytes | None = None,
        log_start_offset: int | None = None,
    ) -> None:
        self.began.append((offset, epochs, producers, log_start_offset))
        self.log.placed_end_offset = self.log.local_log_start_offset = offset
        self.latest_epoch = epochs[-1].epoch


def following(end: int = 10, **log: int) -> tuple[Driver, TieredHost]:
    driver = Driver()
    host = TieredHost(driver, end, **log)
    driver.follow(host)
    driver.turn()
    return driver, host


def local_start(driver: Driver, offset: int, epoch: int, *, code: int = 0) -> None:
    request, answer = driver.only.sent[-1]
    assert isinstance(request, ListOffsetsRequest)
    (query,) = request.topics[0].partitions
    assert (query.timestamp, query.current_leader_epoch) == (-4, 4)
    found = ListOffsetsPartitionResponse(
        partition_index=0, offset=offset, leader_epoch=epoch, error_code=code
    )
    answer.complete(ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[found])]))
    driver.turn()


def epoch_before(driver: Driver, asked: int, epoch: int, end: int) -> None:
    request, answer = driver.only.sent[-1]
    assert isinstance(request, OffsetForLeaderEpochRequest)
    (query,) = request.topics[0].partitions
    assert (query.leader_epoch, query.current_leader_epoch) == (asked, 4)
    found = EpochEndOffset(partition=0, leader_epoch=epoch, end_offset=end)
    answer.complete(
        OffsetForLeaderEpochResponse(topics=[OffsetForLeaderTopicResult(topic="t", partitions=[found])])
    )
    driver.turn()


@pytest.mark.parametrize(("end", "epoch"), [(30, 2), (31, 2), (29, 3), (25, 3)])
def test_it_begins_with_the_state_that_the_leader_epoch_before_had(end: int, epoch: int) -> None:
    """The epoch of the record before the local start is the one before, or that of the start itself."""
    driver, host = following()
    driver.answer(data(0, code=MOVED))
    local_start(driver, 30, 3)
    epoch_before(driver, 2, 2, end)
    assert host.asked == [(30, epoch)]
    assert host.began == []
    host.state.complete(STATE)
    driver.turn()
    assert host.began == [(30, STATE.epochs, b"producers", 2)], "the whole log starts where the leader's does"
    (place,) = driver.asked().topics[0].partitions
    assert (place.fetch_offset, place.last_fetched_epoch) == (30, 3)


def test_the_first_epoch_has_none_before() -> None:
    driver, host = following()
    driver.answer(data(0, code=MOVED))
    local_start(driver, 30, 0)
    assert host.asked == [(30, 0)]


def test_what_the_store_does_not_know_yet_is_asked_again() -> None:
    driver, host = following()
    driver.answer(data(0, code=MOVED))
    local_start(driver, 30, 0)
    host.state.fail(BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, "no segment"))
    driver.turn()
    requests = len(driver.only.sent)
    assert host.began == []
    assert [event for _, event, _ in driver.events.events] == [
        "a follower doesn't know yet how it begins at the leader's local start"
    ]
    driver.runtime.advance(701)
    driver.asked(requests + 1)


def test_a_leader_that_refuses_is_asked_again() -> None:
    driver, host = following()
    driver.answer(data(0, code=MOVED))
    local_start(driver, -1, -1, code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    driver.runtime.advance(701)
    driver.asked(3)
    assert (host.asked, host.began) == ([], [])


def test_a_log_that_is_not_tiered_here_yet_waits_for_its_configuration() -> None:
    driver = Driver(10)
    driver.answer(data(0, code=MOVED))
    local_start(driver, 30, 0)
    assert driver.logs[0].restarted == []
    driver.runtime.advance(701)
    driver.asked(3)


def test_a_follower_that_has_stopped_begins_nothing() -> None:
    driver, host = following()
    driver.answer(data(0, code=MOVED))
    local_start(driver, 30, 0)
    host.follower.stop()
    host.state.complete(STATE)
    driver.turn()
    assert host.began == []


def test_a_log_that_a_crash_left_without_its_state_gets_it_before_the_first_fetch() -> None:
    driver = Driver()
    host = TieredHost(driver, 30, local_start=30)
    host.latest_epoch, host.high_watermark = -1, 30
    driver.follow(host)
    driver.turn()
    local_start(driver, 30, 0)
    host.state.complete(STATE)
    driver.turn()
    assert host.began == [(30, STATE.epochs, b"producers", 0)]
    assert driver.places() == {0: 30}


def test_a_truncation_into_the_remote_part_begins_with_the_state_from_the_store() -> None:
    """Without it the replica would know no producer of the records below."""
    driver, host = following(40, local_start=30)
    host.ours = EpochEnd(1, 25)
    driver.answer(data(0, diverging_epoch=DivergingEpoch(epoch=1, end_offset=25)))
    assert host.truncated == [25]
    local_start(driver, 30, 0)
    host.state.complete(STATE)
    driver.turn()
    assert host.began == [(30, STATE.epochs, b"producers", 0)]
    assert driver.places() == {0: 30}


def test_a_store_that_takes_its_time_holds_up_no_other_partition() -> None:
    driver = Driver()
    host, other = TieredHost(driver, 10), Log(driver, 1, 20)
    for each in (host, other):
        driver.follow(each)
    driver.turn()
    driver.answer(data(0, code=MOVED), data(1))
    fetches = [request for request, _ in driver.only.sent if isinstance(request, FetchRequest)]
    assert len(fetches) == 2
    assert fetches[-1].max_wait_ms == 444, "the leader isn't asked again and again meanwhile"
    host.follower.update(host.follower.image)
    driver.turn()
    questions = [request for request, _ in driver.only.sent if isinstance(request, ListOffsetsRequest)]
    assert len(questions) == 1, "a new image begins nothing anew"


class TieredNodes(ThreeNodes):
    """Three nodes whose logs are tiered, with one store."""

    def __init__(self) -> None:
        self.store = store = RemoteStore()

        class Options(msgspec.Struct, frozen=True):
            local: str = "storage_local"

        class Plugin:
            options_class = Options
            roles = ("storage",)
            tiers = True

            @hookimpl
            def blumfeld_make_storage(self, composition: Composition) -> LogStorage:
                storage = FakeTieredStorage(composition.local_storage, composition.runtime, store)
                return cast("LogStorage", storage)

        class Point(EntryPoint):
            def load(self) -> Any:
                return Plugin

        sections = {"storage": {"plugin": "storage_fake"}}
        point = Point("storage_fake", "tests:Plugin", GROUP)
        super().__init__(sections=sections, plugins=[point], tiers=True)

    def have_all(self, *nodes: int) -> bool:
        """Whether these replicas have what the leader has."""
        end = self.replica(self.image().leader).log.written_end_offset
        replicas = [self.hosted(node) for node in nodes]
        return all(one is not None and one.log.written_end_offset == end for one in replicas)


def test_a_new_replica_of_a_tiered_topic_copies_the_local_part_and_may_lead() -> None:
    nodes = TieredNodes()

    async def story() -> None:
        await nodes.create(configs={"remote.storage.enable": "true", "internal.segment.bytes": "400"})
        for _ in range(30):
            await nodes.produce([b"value"] * 3)
        leader = nodes.image().leader
        follower, third = (node for node in (1, 2, 3) if node != leader)
        await nodes.until(lambda: nodes.have_all(follower, third))
        nodes.machine(follower).crash(power_cut=False)
        await nodes.until(lambda: nodes.shared.image.brokers[follower].fenced)
        for _ in range(30):
            await nodes.produce([b"value"] * 3)
        log = tiered_log(nodes.replica(leader).log)
        log.copy()
        log.drop_segments(log.copied_end_offset)
        nodes.replica(leader).log_start_moved()
        local = log.local_log_start_offset
        assert local > 90
        assert await nodes.machine(follower).start()
        await nodes.until(lambda: nodes.have_all(follower))
        replica = nodes.replica(follower)
        assert (replica.log.log_start_offset, local_log_start_offset(replica.log)) == (0, local)
        assert replica.state.epochs.entries == nodes.replica(leader).state.epochs.entries
        await nodes.until(lambda: follower in nodes.image().isr)

    nodes.run(story())
    assert nodes.said(
        "the records behind our log lie in the remote store; it begins at the leader's local start"
    )
