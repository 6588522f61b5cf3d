"""Markers: sent to the leaders as of now, retried until they are written, and reported once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from blumfeld.spi.completion import Completion
from blumfeld.spi.runtime import Phase
from blumfeld.spi.scheduler import BUDGETS, Lane
from blumfeld.spi.transactions import TransactionSurroundings
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from blumfeld.wire.schema import Message
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_transactions.commands import MarkersWritten, WriteMarkers
from blumfeld_transactions.markers import (
    MARKERS_A_REQUEST,
    OWN_REQUESTS_MAX,
    OWN_SLICE_MS,
    RETRY_MS,
    ROUTED_A_STEP,
    MarkerSender,
    Pending,
)
from blumfeld_transactions.transaction import Partition


class Around:
    """Leaders by partition of one topic ``t``; requests wait until the test answers them."""

    def __init__(self, leaders: dict[int, int]) -> None:
        self.coordinator = self.metadata = self
        self.leaders = leaders
        self.deleted = False
        self.leads = {0: 0, 7: 3}
        """Leader epochs of the shards that live here."""
        self.requests: list[tuple[int, WriteTxnMarkersRequest, Completion[Message]]] = []
        self.told: list[tuple[int, int, MarkersWritten]] = []
        self.refuse: list[ErrorCode] = []
        self.end_turn: Callable[[], None] = lambda: None

    @property
    def image(self) -> Any:
        partitions = {index: SimpleNamespace(leader=leader) for index, leader in self.leaders.items()}
        return SimpleNamespace(topics={} if self.deleted else {"t": SimpleNamespace(partitions=partitions)})

    def epoch_of(self, partition: int) -> int | None:
        return self.leads.get(partition)

    def send(self, node_id: int, request: Message) -> Completion[Message]:
        answer: Completion[Message] = Completion()
        self.requests.append((node_id, cast("WriteTxnMarkersRequest", request), answer))
        return answer

    def submit_in_epoch(self, partition: int, epoch: int, command: MarkersWritten) -> Completion[Any]:
        self.told.append((partition, epoch, command))
        done: Completion[Any] = Completion()
        if self.refuse:
            done.fail(BrokerError(self.refuse.pop(0)))
        else:
            done.complete(True)
        return done

    def answer(self, codes: dict[int, int] | None = None) -> tuple[int, list[int]]:
        """As :meth:`settle`, in a turn of its own."""
        settled = self.settle(codes)
        self.end_turn()
        return settled

    def settle(self, codes: dict[int, int] | None = None) -> tuple[int, list[int]]:
        """Answer the first waiting request. Returns its node and the partitions of its markers."""
        node_id, request, answer = self.requests.pop(0)
        indexes = [
            i for marker in request.markers for topic in marker.topics for i in topic.partition_indexes
        ]
        codes = codes or {}
        results = [
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(partition_index=i, error_code=codes.get(i, 0))
                            for i in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
        answer.complete(WriteTxnMarkersResponse(markers=results))
        return node_id, indexes


class Sender(MarkerSender):
    """A sender whose every transaction ends in a turn of its own."""

    runtime: FakeRuntime

    def begin(self, partition: int, epoch: int, markers: WriteMarkers) -> None:
        super().begin(partition, epoch, markers)
        self.runtime.run_turn()

    def begin_in_one_turn(self, *several: WriteMarkers) -> None:
        for markers in several:
            super().begin(0, 0, markers)
        self.runtime.run_turn()


def sender(leaders: dict[int, int]) -> tuple[Sender, Around, FakeRuntime]:
    runtime, around = FakeRuntime(), Around(leaders)
    quiet = SimpleNamespace(warning=lambda *_, **__: None)
    marker_sender = Sender(runtime, cast("Any", quiet), cast("TransactionSurroundings", around))
    marker_sender.runtime, around.end_turn = runtime, runtime.run_turn
    return marker_sender, around, runtime


def markers(*indexes: int, name: str = "tx") -> WriteMarkers:
    return WriteMarkers(
        transactional_id=name,
        producer_id=1000,
        epoch=4,
        commit=True,
        partitions=frozenset(("t", index) for index in indexes),
        client_version=0,
    )


def test_each_leader_gets_its_markers_and_the_shard_is_told_once_all_are_written() -> None:
    marker_sender, around, _ = sender({0: 1, 1: 2, 2: 1})
    marker_sender.begin(7, 3, markers(0, 1, 2))
    (marker,) = around.requests[0][1].markers
    assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (1000, 4, 3)
    assert marker.transaction_result
    assert (around.answer(), around.told) == ((1, [0, 2]), [])
    assert around.answer() == (2, [1])
    assert [(p, e, c.transactional_id) for p, e, c in around.told] == [(7, 3, "tx")]
    assert marker_sender.waiting == 0


def test_transactions_that_end_during_a_request_share_the_next_one() -> None:
    marker_sender, around, _ = sender({0: 1, 1: 1})
    for name in "abc":
        marker_sender.begin(0, 0, markers(0, 1, name=name))
    assert len(around.requests) == 1
    around.answer()
    assert len(around.requests) == 1
    assert len(around.requests[0][1].markers) == 2
    around.answer()
    assert [command.transactional_id for _, _, command in around.told] == ["a", "b", "c"]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ],
)
def test_a_marker_that_failed_goes_to_the_leader_of_then(code: ErrorCode) -> None:
    marker_sender, around, runtime = sender({0: 1, 1: 1})
    marker_sender.begin(0, 0, markers(0, 1))
    around.answer({1: code})
    assert (around.requests, around.told) == ([], [])
    around.leaders[1] = 2
    runtime.advance(RETRY_MS)
    assert around.answer() == (2, [1])
    assert len(around.told) == 1


def test_a_broker_that_cannot_be_reached_is_asked_again() -> None:
    marker_sender, around, runtime = sender({0: 2})
    marker_sender.begin(0, 0, markers(0))
    around.requests.pop(0)[2].fail(OSError("away"))
    assert around.requests == []
    runtime.advance(RETRY_MS)
    around.answer()
    assert len(around.told) == 1


def test_a_partition_without_a_leader_waits_and_one_that_is_gone_does_not() -> None:
    marker_sender, around, runtime = sender({0: -1})
    marker_sender.begin(0, 0, markers(0))
    runtime.advance(RETRY_MS)
    assert (around.requests, around.told) == ([], [])
    around.deleted = True
    runtime.advance(RETRY_MS)
    assert (around.requests, len(around.told)) == ([], 1)


@pytest.mark.parametrize("code", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED])
def test_a_fenced_coordinator_completes_nothing(code: ErrorCode) -> None:
    marker_sender, around, runtime = sender({0: 1, 1: 2})
    marker_sender.begin(0, 0, markers(0, 1))
    around.answer({0: code})
    around.answer()
    runtime.advance(RETRY_MS)
    assert (around.requests, around.told, marker_sender.waiting) == ([], [], 0)


def test_a_transaction_without_partitions_is_complete_at_once() -> None:
    marker_sender, around, _ = sender({})
    marker_sender.begin(0, 0, markers())
    assert len(around.told) == 1


def test_a_second_order_is_the_first_one_and_a_refused_completion_comes_again() -> None:
    marker_sender, around, runtime = sender({0: 1})
    around.refuse = [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    marker_sender.begin(0, 0, markers(0))
    marker_sender.begin(0, 0, markers(0))
    around.answer()
    assert (around.requests, len(around.told)) == ([], 1)
    runtime.advance(RETRY_MS)
    assert len(around.told) == 2
    runtime.advance(RETRY_MS)
    assert len(around.told) == 2


def test_a_request_has_a_bounded_number_of_markers() -> None:
    """This node's own markers are written at once, and nobody else has a turn meanwhile."""
    many = MARKERS_A_REQUEST + 1
    marker_sender, around, _ = sender(dict.fromkeys(range(many), 1))
    marker_sender.begin(0, 0, markers(*range(many)))
    assert around.answer() == (1, list(range(MARKERS_A_REQUEST)))
    assert (around.answer(), len(around.told)) == ((1, [many - 1]), 1)


def test_transactions_that_end_in_one_turn_share_a_request() -> None:
    marker_sender, around, _ = sender({0: 1, 1: 1})
    marker_sender.begin_in_one_turn(markers(0, name="a"), markers(0, 1, name="b"))
    assert len(around.requests[0][1].markers) == 2
    around.answer()
    assert (around.requests, len(around.told)) == ([], 2)


def test_all_markers_of_a_partition_go_before_those_of_the_next() -> None:
    """So their broker writes a partition once, however many transactions end."""
    count = MARKERS_A_REQUEST // 2
    marker_sender, around, _ = sender({0: 1, 1: 1, 2: 1})
    marker_sender.begin_in_one_turn(*(markers(0, 1, 2, name=f"tx{n}") for n in range(count)))
    assert around.answer() == (1, [0, 1] * count)
    assert around.told == []
    assert around.answer() == (1, [2] * count)
    assert len(around.told) == count


def test_a_partition_with_too_many_markers_holds_back_no_other_one() -> None:
    many = MARKERS_A_REQUEST + 1
    marker_sender, around, _ = sender({0: 1, 1: 1})
    marker_sender.begin_in_one_turn(
        *(markers(0, name=f"tx{n}") for n in range(many)), markers(1, name="other")
    )
    assert around.answer() == (1, [0] * MARKERS_A_REQUEST)
    request = around.requests[0][1]
    assert [marker.topics[0].partition_indexes for marker in request.markers] == [[1], [0]]
    around.answer()
    assert len(around.told) == many + 1


def test_a_coordinator_without_its_leadership_sends_nothing_more() -> None:
    """Answers that come afterwards change nothing: the next coordinator writes these markers, in its own epoch."""
    marker_sender, around, runtime = sender({0: 1, 1: 2, 2: 1, 3: -1})
    marker_sender.begin(0, 0, markers(0, 1))
    marker_sender.begin(0, 0, markers(2, 3, name="other"))
    around.leads = {0: 1}
    around.answer({0: ErrorCode.NOT_LEADER_OR_FOLLOWER})
    around.answer()
    runtime.advance(RETRY_MS)
    assert (around.requests, around.told, marker_sender.waiting) == ([], [], 0)


def test_a_shard_that_was_reloaded_in_its_epoch_goes_on_with_the_requests_under_way() -> None:
    marker_sender, around, _ = sender({0: 1, 1: 2})
    marker_sender.begin(0, 0, markers(0, 1))
    around.answer()
    marker_sender.begin(0, 0, markers(0, 1))  # the order of the reloaded shard
    around.answer()
    assert (around.requests, len(around.told), marker_sender.waiting) == ([], 1, 0)


def test_a_late_answer_is_not_about_the_next_transaction() -> None:
    """In the first generation two transactions have equal orders. The topic was deleted and made again meanwhile."""
    marker_sender, around, runtime = sender({0: 1, 1: -1})
    marker_sender.begin(0, 0, markers(0, 1))
    around.deleted = True
    (_, _, late) = around.requests[0]
    late.fail(OSError("the broker went, with the markers that it may have written"))
    around.requests.clear()
    runtime.advance(RETRY_MS)
    assert len(around.told) == 1  # nothing is left to end
    around.deleted = False
    marker_sender.begin(0, 0, markers(0))
    assert (around.answer(), len(around.told)) == ((1, [0]), 2)


def test_a_transaction_among_those_that_are_queued_in_pieces_is_told_once() -> None:
    """Its only marker is written before its turn comes again, in which it has no pieces left."""
    count = 5 * ROUTED_A_STEP
    marker_sender, around, runtime = sender(dict.fromkeys(range(count), 1))
    completed_names: list[str] = []

    def submit(partition: int, epoch: int, command: MarkersWritten) -> Completion[Any]:
        completed_names.append(command.transactional_id)
        return Completion()

    around.submit_in_epoch = submit  # type: ignore[method-assign]
    for name, size in (("large", count), ("small", 1), ("large too", count)):
        MarkerSender.begin(marker_sender, 0, 0, markers(*range(size), name=name))
    for _ in turn_by_turn(runtime):
        while around.requests:
            around.settle()
    assert (marker_sender.waiting, sorted(completed_names)) == (0, ["large", "large too", "small"])


def _at_once(around: Around, write: Any, node_id: int, request: Message) -> Completion[Message]:
    """This node's own markers may be written at once."""
    answer = cast("Completion[Message]", write(node_id, request))
    around.settle()
    return answer


def test_requests_that_are_answered_at_once_are_not_answered_inside_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A coordinator's own node that can write none: each request gets a turn, and no marker is lost."""
    monkeypatch.setattr("blumfeld_transactions.markers.MARKERS_A_REQUEST", 1)
    number = 400
    marker_sender, around, runtime = sender(dict.fromkeys(range(number), 1))
    codes: dict[int, int] = dict.fromkeys(range(number), ErrorCode.NOT_ENOUGH_REPLICAS)

    def write(node_id: int, request: Message) -> Completion[Message]:
        answer = Around.send(around, node_id, request)
        around.settle(codes)
        return answer

    around.send = write  # type: ignore[method-assign]
    marker_sender.begin(0, 0, markers(*range(number)))
    runtime.advance(RETRY_MS)
    codes.clear()  # the replicas are back
    runtime.advance(2 * RETRY_MS)
    assert (marker_sender.waiting, len(around.told)) == (0, 1)


def turn_by_turn(runtime: FakeRuntime) -> Iterator[None]:
    """Run turns one at a time, as long as one is due."""
    loop = runtime.loop
    while loop._ready:  # type: ignore[attr-defined]
        loop._one_turn()
        yield


@pytest.mark.parametrize(
    ("takes_ms", "most"), [(OWN_SLICE_MS, 1), (OWN_SLICE_MS / 3, 3), (0, OWN_REQUESTS_MAX)]
)
def test_requests_to_this_node_share_a_slice_of_each_turn(
    takes_ms: float, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """16 requests of 200 markers held the loop for 54 ms."""
    monkeypatch.setattr("blumfeld_transactions.markers.MARKERS_A_REQUEST", 10)
    number = 2 * OWN_REQUESTS_MAX + 1
    marker_sender, around, runtime = sender(dict.fromkeys(range(number * 10), 1))
    write, a_turn, now_ms = around.send, [0], [0.0]
    monkeypatch.setattr(runtime, "monotonic_ms", lambda: now_ms[0])

    def at_the_end_of_the_turn(node_id: int, request: Message) -> Completion[Message]:
        a_turn[-1] += 1
        now_ms[0] += takes_ms
        answer = write(node_id, request)
        runtime.at_end_of_turn(Phase.COMPLETE, lambda: around.settle() and None)
        return answer

    around.send = at_the_end_of_the_turn  # type: ignore[method-assign]
    MarkerSender.begin(marker_sender, 0, 0, markers(*range(number * 10)))
    a_turn.extend(0 for _ in turn_by_turn(runtime))
    assert (marker_sender.waiting, len(around.told)) == (0, 1)
    assert (max(a_turn), sum(a_turn)) == (most, number)


@pytest.mark.parametrize(
    "sizes",
    [[20_000], [1_000] * 20, [2_001, 0, 3]],
    ids=["one large", "many", "small ones behind a large one"],
)
def test_many_markers_are_queued_in_pieces(sizes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """The markers of a transaction over 10,000 partitions were queued in one step, and those of all transactions that
    a failed coordinator had decided on."""
    routed, worked_ms = [0], [0.0]
    route = MarkerSender._route
    monkeypatch.setattr(FakeRuntime, "monotonic_ms", lambda _: worked_ms[0])

    def counted(self: MarkerSender, pending: Pending, partitions: Sequence[Partition]) -> None:
        routed[-1] += len(partitions)
        worked_ms[0] += len(partitions) / 1_000
        route(self, pending, partitions)

    monkeypatch.setattr(MarkerSender, "_route", counted)
    marker_sender, around, runtime = sender(dict.fromkeys(range(max(sizes)), 1))
    for number, size in enumerate(sizes):
        MarkerSender.begin(marker_sender, 0, 0, markers(*range(size), name=f"tx{number}"))
    routed.extend(0 for _ in turn_by_turn(runtime))
    partition_indexes: list[int] = []
    while around.requests:
        partition_indexes += around.answer()[1]
    assert sum(routed) == sum(sizes) == len(partition_indexes)
    assert max(routed) <= BUDGETS[Lane.COORDINATORS].turn_ms * 1_000 + ROUTED_A_STEP
    assert (marker_sender.waiting, len(around.told)) == (0, len(sizes))
