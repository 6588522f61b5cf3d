from __future__ import annotations

from blumfeld.spi.zookeeper import ConnectionLostError, Watch, WatchEvent, WatchKind
from blumfeld_consensus_zk_compat.controller.watched_nodes import RETRY_MS, WatchedNode, broker_news
from blumfeld_kit.fakes.runtime import FakeRuntime
from tests.plugins.consensus_zk_compat.controller.decided import registration

EVENT = WatchEvent(WatchKind.CHILDREN, "/somewhere")


class Reads:
    """Reads of one node: each can do something before it ends."""

    def __init__(self) -> None:
        self.runtime = FakeRuntime()
        self.watches: list[Watch] = []
        self.errors: list[Exception] = []
        self.failed: list[BaseException] = []
        self.changes_meanwhile = 0
        self.node = WatchedNode(self.runtime, "a node", self._read, self.failed.append)
        self.runtime.run_turn()

    async def _read(self, watch: Watch) -> None:
        self.watches.append(watch)
        if self.changes_meanwhile:
            self.changes_meanwhile -= 1
            watch(EVENT)
        if self.errors:
            raise self.errors.pop()

    def event(self) -> None:
        self.watches[-1](EVENT)
        self.runtime.run_turn()


def test_each_event_leads_to_one_more_read() -> None:
    reads = Reads()
    for count in (1, 2, 3):
        assert len(reads.watches) == count
        reads.event()


def test_a_change_during_a_read_is_seen_by_another_read() -> None:
    reads = Reads()
    reads.changes_meanwhile = 1
    reads.event()
    assert len(reads.watches) == 3


def test_a_read_that_lost_its_connection_is_tried_again() -> None:
    reads = Reads()
    reads.errors.append(ConnectionLostError("/somewhere"))
    reads.event()
    reads.runtime.advance(RETRY_MS)
    assert len(reads.watches) == 3
    assert reads.failed == []


def test_an_error_that_no_other_attempt_mends_is_told_and_ends_the_reads() -> None:
    reads = Reads()
    reads.errors.append(ValueError("strange"))
    reads.event()
    assert len(reads.failed) == 1
    reads.event()
    assert len(reads.watches) == 2


def test_a_node_that_is_stopped_is_read_no_more() -> None:
    reads = Reads()
    reads.node.stop()
    reads.event()
    assert len(reads.watches) == 1


def test_two_registrations_of_one_id_are_one_only_with_the_same_epoch() -> None:
    known = {1: registration(1, 100), 2: registration(2, 101), 3: registration(3, 102)}
    seen = {1: registration(1, 100), 2: registration(2, 200), 3: registration(3, 102, port=9093)}
    news = broker_news(known, seen)
    assert [(one.broker_id, one.broker_epoch) for one in news.went] == [(2, 101)]
    assert [(one.broker_id, one.broker_epoch) for one in news.came] == [(2, 200)]
    assert [one.broker_id for one in news.changed] == [3]
