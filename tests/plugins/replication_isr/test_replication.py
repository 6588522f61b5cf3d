"""The ISR rules as Kafka's ``Partition`` has them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blumfeld.config.values import BrokerConfig
from blumfeld.spi.cluster import BrokerImage, PartitionImage
from blumfeld.spi.completion import Completion
from blumfeld.spi.hooks import Composition
from blumfeld.spi.storage import PartitionLog, TopicPartition
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    ResponsePartitionData,
    ResponseTopicData,
)
from blumfeld.wire.schema import Message
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_replication_isr import Plugin
from blumfeld_replication_isr.isr_rules import IsrRules
from blumfeld_replication_isr.leader import IsrLeader
from blumfeld_replication_isr.replication import IsrReplication
from tests.broker.harness import Quiet

LAG_MS = 30_000


def rules(
    isr: tuple[int, ...] = (1, 2, 3),
    *,
    replicas: tuple[int, ...] = (1, 2, 3),
    end: int = 10,
    epoch_start: int | None = None,
    high_watermark: int = 0,
    min_isr: int = 1,
    ineligible: tuple[int, ...] = (),
) -> IsrRules:
    return IsrRules(
        leader_id=1,
        replicas=replicas,
        isr=isr,
        partition_epoch=0,
        min_insync_replicas=min_isr,
        log_end_offset=end,
        epoch_start_offset=end if epoch_start is None else epoch_start,
        high_watermark=high_watermark,
        lag_max_ms=LAG_MS,
        now_ms=0,
        eligible=lambda replica: replica not in ineligible,
    )


def test_alone_in_the_isr_the_high_watermark_is_the_log_end() -> None:
    alone = rules((1,), replicas=(1,))
    assert alone.log_end_moved(12, 0)
    assert alone.high_watermark == 12


def test_the_high_watermark_is_the_lowest_log_end_of_the_isr() -> None:
    three = rules()
    assert not three.follower_fetched(2, 1, 8, 1)
    assert three.follower_fetched(3, 1, 6, 1)
    assert three.high_watermark == 6


def test_a_checkpoint_beyond_the_log_counts_only_up_to_its_end() -> None:
    assert rules(high_watermark=99).high_watermark == 10


def test_it_stands_still_under_min_isr() -> None:
    short = rules((1,), min_isr=2, replicas=(1, 2))
    assert not short.log_end_moved(20, 0)
    assert short.high_watermark == 0


def test_it_waits_for_one_who_is_caught_up_and_about_to_join() -> None:
    joining = rules((1,), replicas=(1, 2))
    joining.follower_fetched(2, 1, 10, 5)
    joining.log_end_moved(12, 6)
    assert joining.high_watermark == 10
    assert joining.expansion(2) == (1, 2)


def test_it_does_not_wait_for_one_who_may_not_join() -> None:
    fenced = rules((1,), replicas=(1, 2), ineligible=(2,))
    fenced.follower_fetched(2, 1, 10, 5)
    fenced.log_end_moved(12, 6)
    assert fenced.high_watermark == 12
    assert fenced.expansion(2) is None


def came_back(first_offset: int) -> IsrRules:
    """Follower 2 was caught up, was fenced, and is unfenced and fetches again, all within ``LAG_MS``."""
    away: list[int] = []
    state = rules((1, 2), replicas=(1, 2))
    state._eligible = lambda replica: replica not in away
    state.follower_fetched(2, 1, 10, 1_000)
    away.append(2)
    state.settle((1,), 1, 9_000)
    state.log_end_moved(50, 10_000)
    assert state.high_watermark == 50
    away.clear()
    state.log_end_moved(60, 15_000)
    state.follower_fetched(2, 2, first_offset, 16_000)
    return state


@pytest.mark.parametrize("first_offset", [10, 12])
def test_one_that_left_the_isr_and_came_back_holds_nothing_up(first_offset: int) -> None:
    """Until it is caught up again: after a cut its first fetch comes many seconds behind its heartbeat, and after a
    restart it has to copy what it missed."""
    back = came_back(first_offset)
    assert back.high_watermark == 60
    back.log_end_moved(70, 16_001)
    assert back.high_watermark == 70
    assert back.expansion(2) is None


def test_one_that_came_back_is_waited_for_once_it_is_caught_up() -> None:
    """Always a fetch behind is enough. Otherwise it could not join where the leader alone is in the ISR."""
    back = came_back(10)
    back.log_end_moved(70, 16_001)
    back.follower_fetched(2, 2, 60, 16_002)
    back.log_end_moved(80, 16_003)
    assert back.high_watermark == 70
    back.follower_fetched(2, 2, 70, 16_004)
    assert back.expansion(2) == (1, 2)


def test_one_below_the_start_of_the_epoch_may_not_join() -> None:
    behind = rules((1,), replicas=(1, 2), high_watermark=4)
    behind.follower_fetched(2, 1, 7, 5)
    assert behind.expansion(2) is None


def test_above_the_high_watermark_and_below_the_start_of_the_epoch_is_not_enough() -> None:
    """What it has there may be of another history than this leader's."""
    slow = rules((1, 2), high_watermark=4)
    slow.follower_fetched(3, 1, 7, 5)
    assert slow.high_watermark == 4
    assert slow.expansion(3) is None
    slow.follower_fetched(3, 1, 10, 6)
    assert slow.expansion(3) == (1, 2, 3)


def test_placed_records_of_an_earlier_epoch_count_before_they_are_written() -> None:
    rising = rules((1,), replicas=(1, 2), epoch_start=12, high_watermark=10)
    rising.follower_fetched(2, 1, 10, 5)
    assert rising.expansion(2) is None
    rising.log_end_moved(15, 6)
    rising.follower_fetched(2, 1, 11, 7)
    assert rising.expansion(2) is None
    rising.follower_fetched(2, 1, 15, 8)
    assert rising.expansion(2) == (1, 2)


def test_who_is_not_caught_up_for_long_leaves_the_isr() -> None:
    two = rules((1, 2), replicas=(1, 2))
    assert two.shrinkage(LAG_MS) is None
    assert two.shrinkage(LAG_MS + 1) == (1,)


def test_always_one_fetch_behind_is_caught_up() -> None:
    busy = rules((1, 2), replicas=(1, 2))
    for step in range(1, 10):
        busy.follower_fetched(2, 1, 10 * step, 10_000 * step)
        busy.log_end_moved(10 * (step + 1), 10_000 * step)
    assert busy.shrinkage(100_000) is None


def test_while_a_change_is_in_flight_both_isrs_count_and_no_other_is_proposed() -> None:
    three = rules((1, 2))
    three.follower_fetched(2, 1, 10, 0)
    three.follower_fetched(3, 1, 10, 0)
    grown = three.expansion(3)
    assert grown == (1, 2, 3)
    three.propose(grown)
    assert three.expansion(3) is None
    assert three.shrinkage(10**9) is None
    three.log_end_moved(20, 10**9)
    three.follower_fetched(2, 1, 20, 10**9)
    assert three.high_watermark == 10
    three.settle(None, None, 10**9)
    assert three.maximal_isr == (1, 2)
    assert three.high_watermark == 20


def test_an_older_partition_epoch_changes_nothing() -> None:
    two = rules((1, 2), replicas=(1, 2))
    two.settle((1,), 5, 0)
    two.settle((1, 2), 4, 0)
    assert two.isr == (1,)


Step = st.one_of(
    st.tuples(st.just("end"), st.just(0), st.integers(0, 5)),
    st.tuples(st.just("fetch"), st.sampled_from([2, 3]), st.integers(0, 8)),
    st.tuples(st.just("expand"), st.sampled_from([2, 3]), st.booleans()),
    st.tuples(st.just("shrink"), st.just(0), st.booleans()),
)


@given(st.lists(st.tuples(Step, st.integers(0, 20_000)), max_size=60), st.integers(1, 3))
def test_the_high_watermark_never_goes_back_and_is_on_all_of_the_isr(
    steps: list[tuple[tuple[str, int, int], int]], min_isr: int
) -> None:
    """Whatever happens: everything below the high watermark is on the leader and on every member of the ISR."""
    state = rules(min_isr=min_isr)
    has = {2: 0, 3: 0}
    now, epoch = 0, 0
    for (kind, replica, value), wait_ms in steps:
        now += wait_ms
        before, end = state.high_watermark, state.log_end_offset
        if kind == "end":
            state.log_end_moved(end + value, now)
        elif kind == "fetch":
            has[replica] = min(end, has[replica] + value)
            state.follower_fetched(replica, 1, has[replica], now)
        else:
            wanted = state.expansion(replica) if kind == "expand" else state.shrinkage(now)
            if wanted is not None:
                epoch += 1
                state.propose(wanted)
                state.settle(wanted if value else None, epoch if value else None, now)
        assert state.high_watermark >= before
        assert state.high_watermark <= state.log_end_offset
        assert all(state.high_watermark <= has[r] for r in state.isr if r != 1)
        if len(state.isr) < min_isr:
            assert state.high_watermark == before


# The driver


class Host:
    """``ReplicaHost`` with a log that has only an end."""

    def __init__(self, end: int = 10, min_insync_replicas: int = 1) -> None:
        self.partition = TopicPartition("t", 0)
        self.topic_id = b"t" * 16
        self.log = cast(
            "PartitionLog", SimpleNamespace(written_end_offset=end, placed_end_offset=end, log_start_offset=0)
        )
        self.min_insync_replicas = min_insync_replicas
        self.moved = 0
        self.low_watermarks: list[int] = []
        self.leader: Any = None

    def high_watermark_moved(self) -> None:
        self.moved += 1

    def low_watermark_moved(self) -> None:
        self.low_watermarks.append(self.leader.low_watermark)


OWN_EPOCH = 101
"""This process's broker epoch, as its registration was answered."""
EARLIER_EPOCH = 90
"""The epoch of an earlier process, which the image may still show."""


class Controller:
    """Keeps what it was asked, and answers when the test says so."""

    def __init__(self) -> None:
        self.asked: list[tuple[AlterPartitionRequest, Completion[Message]]] = []
        self.timeouts: list[float] = []
        brokers = {
            n: BrokerImage(broker_id=n, epoch=epoch, incarnation_id=bytes(16), endpoints=())
            for n, epoch in ((1, EARLIER_EPOCH), (2, 102), (3, 103))
        }
        self.image = SimpleNamespace(brokers=brokers)

    def submit(self, command: Message, timeout_ms: float, **how: Any) -> Completion[Message]:
        assert isinstance(command, AlterPartitionRequest)
        answer: Completion[Message] = Completion()
        self.asked.append((command, answer))
        self.timeouts.append(timeout_ms)
        return answer

    def decide(self, code: ErrorCode = ErrorCode.NONE, isr: tuple[int, ...] = (), epoch: int = 0) -> None:
        data = ResponsePartitionData(error_code=int(code), isr=list(isr), partition_epoch=epoch)
        self.asked[-1][1].complete(
            AlterPartitionResponse(topics=[ResponseTopicData(topic_id=b"t" * 16, partitions=[data])])
        )


class Driver:
    """The plug-in on virtual time, leading one partition."""

    def __init__(
        self, isr: tuple[int, ...], *, min_isr: int = 1, high_watermark: int = 0, placed: int = 10
    ) -> None:
        self.runtime = FakeRuntime()
        self.events = Quiet()
        self.controller = Controller()
        composition = SimpleNamespace(
            runtime=self.runtime,
            config=BrokerConfig(),
            metadata=self.controller,
            node_id=1,
            membership=SimpleNamespace(broker_epoch=OWN_EPOCH),
            log=lambda name: self.events,
        )
        self.replication = IsrReplication(cast("Composition", composition))
        self.runtime.run(self.replication.start())
        self.host = Host(min_insync_replicas=min_isr)
        cast("Any", self.host.log).placed_end_offset = placed
        self.image = PartitionImage(
            partition=0, replicas=(1, 2, 3), isr=isr, leader=1, leader_epoch=4, partition_epoch=6
        )
        self.leader = self.replication.become_leader(cast("Any", self.host), self.image, high_watermark)
        self.host.leader = self.leader

    @property
    def asked(self) -> list[tuple[AlterPartitionRequest, Completion[Message]]]:
        """What the controller was asked up to the end of this turn."""
        self.runtime.run_turn()
        return self.controller.asked

    def decide(self, *decision: Any, **fields: Any) -> None:
        """Let the controller answer what it was asked last."""
        self.runtime.run_turn()
        self.controller.decide(*decision, **fields)
        self.runtime.run_turn()

    def maximal_isr(self) -> tuple[int, ...]:
        return cast("IsrLeader", self.leader).rules.maximal_isr

    def wanted_isr(self) -> list[list[tuple[int, int]]]:
        return [
            [(b.broker_id, b.broker_epoch) for b in request.topics[0].partitions[0].new_isr_with_epochs]
            for request, _ in self.asked
        ]


def test_with_an_isr_of_one_the_high_watermark_follows_the_log_end() -> None:
    driver = Driver((1,))
    driver.leader.log_end_moved()
    assert (driver.leader.high_watermark, driver.host.moved) == (10, 1)
    driver.leader.log_end_moved()
    assert driver.host.moved == 1
    assert driver.leader.check_committed(10) == ErrorCode.NONE
    assert driver.leader.check_committed(11) is None


def test_acks_all_is_checked_before_and_after() -> None:
    driver = Driver((1, 2), min_isr=2)
    assert driver.leader.check_append_all() == ErrorCode.NONE
    driver.leader.follower_fetched(2, 102, 10, 0)
    driver.leader.update(
        PartitionImage(partition=0, replicas=(1, 2, 3), isr=(1,), leader=1, leader_epoch=4, partition_epoch=7)
    )
    assert driver.leader.check_append_all() == ErrorCode.NOT_ENOUGH_REPLICAS
    assert driver.leader.check_committed(10) == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


def test_a_follower_that_caught_up_joins_when_the_controller_agrees() -> None:
    driver = Driver((1,))
    driver.leader.log_end_moved()
    assert driver.leader.follower_fetched(2, 102, 10, 0) == ErrorCode.NONE
    assert driver.wanted_isr() == [[(1, 101), (2, 102)]]
    request, _ = driver.asked[0]
    partition = request.topics[0].partitions[0]
    assert (request.broker_id, request.broker_epoch) == (1, 101)
    assert (partition.leader_epoch, partition.partition_epoch) == (4, 6)
    driver.leader.follower_fetched(3, 103, 10, 0)
    assert len(driver.asked) == 1, "one change at a time"
    driver.decide(isr=(1, 2), epoch=7)
    assert driver.leader.isr == (1, 2)


def test_a_follower_without_the_placed_records_of_earlier_epochs_does_not_join() -> None:
    """The log may end behind what is written when an election comes: the rest is of the epoch before."""
    driver = Driver((1,), placed=12, high_watermark=10)
    driver.leader.follower_fetched(2, 102, 10, 0)
    assert driver.asked == []
    cast("Any", driver.host.log).written_end_offset = 12
    driver.leader.log_end_moved()
    driver.leader.follower_fetched(2, 102, 12, 0)
    assert driver.wanted_isr() == [[(1, 101), (2, 102)]]


def test_a_leader_that_was_elected_uncleanly_has_recovered_when_a_follower_joins() -> None:
    driver = Driver((1,))
    recovering = PartitionImage(
        partition=0,
        replicas=(1, 2, 3),
        isr=(1,),
        leader=1,
        leader_epoch=4,
        partition_epoch=7,
        leader_recovery_state=1,
    )
    driver.leader.update(recovering)
    driver.leader.log_end_moved()
    driver.leader.follower_fetched(2, 102, 10, 0)
    (request, _), *_ = driver.asked
    assert request.topics[0].partitions[0].leader_recovery_state == 0


def test_a_laggard_is_taken_out() -> None:
    driver = Driver((1, 2))
    driver.leader.log_end_moved()
    assert driver.leader.high_watermark == 0
    driver.runtime.advance(LAG_MS + LAG_MS / 2 + 1)
    assert driver.wanted_isr() == [[(1, 101)]]
    driver.decide(isr=(1,), epoch=7)
    assert (driver.leader.isr, driver.leader.high_watermark) == ((1,), 10)


def test_a_refused_change_is_taken_back_and_asked_again() -> None:
    driver = Driver((1, 2))
    driver.runtime.advance(LAG_MS * 1.5 + 1)
    driver.decide(ErrorCode.INELIGIBLE_REPLICA)
    assert driver.maximal_isr() == (1, 2)
    driver.runtime.advance(LAG_MS / 2)
    assert len(driver.asked) == 2


def test_a_change_without_an_answer_is_not_taken_back() -> None:
    """The controller may have made it, and may elect the new member."""
    driver = Driver((1,))
    driver.leader.log_end_moved()
    driver.leader.follower_fetched(2, 102, 10, 0)
    log = cast("Any", driver.host.log)
    driver.asked[-1][1].fail(BrokerError(ErrorCode.REQUEST_TIMED_OUT))
    log.written_end_offset = 20
    driver.leader.log_end_moved()
    driver.runtime.advance(LAG_MS * 3)
    assert driver.leader.high_watermark == 10
    assert driver.wanted_isr() == [[(1, 101), (2, 102)]] * 2, "asked again at once"
    driver.asked[-1][1].complete(AlterPartitionResponse(error_code=int(ErrorCode.STALE_BROKER_EPOCH)))
    driver.runtime.advance(100)
    assert len(driver.asked) == 3
    driver.decide(ErrorCode.UNKNOWN_SERVER_ERROR)
    driver.runtime.advance(1_100)
    assert len(driver.asked) == 4
    assert driver.leader.high_watermark == 10
    driver.decide(isr=(1, 2), epoch=7)
    assert driver.leader.isr == (1, 2)
    driver.leader.follower_fetched(2, 102, 20, 0)
    assert driver.leader.high_watermark == 20


def test_an_image_that_is_no_newer_decides_on_no_change() -> None:
    """It may tell the last change while the next one is under way."""
    driver = Driver((1,))
    driver.leader.log_end_moved()
    driver.leader.follower_fetched(2, 102, 10, 0)
    assert len(driver.asked) == 1
    driver.leader.update(driver.image)
    assert driver.maximal_isr() == (1, 2)
    driver.leader.update(msgspec.structs.replace(driver.image, isr=(1,), partition_epoch=7))
    assert driver.maximal_isr() == (1,)
    driver.decide(isr=(1, 2), epoch=7)
    assert driver.leader.isr == (1,), "the answer to a change that the image overtook"


def test_leaders_share_a_request_and_the_next_one_waits_for_its_answer() -> None:
    driver = Driver((1, 2))
    others = []
    for number in range(1, 4):
        host = Host()
        host.partition = TopicPartition("t", number)
        image = msgspec.structs.replace(driver.image, partition=number)
        host.leader = driver.replication.become_leader(cast("Any", host), image, 0)
        others.append(host.leader)
    driver.runtime.advance(LAG_MS * 1.5 + 1)
    (request, answer) = driver.asked[-1]
    assert len(driver.asked) == 1
    assert [p.partition_index for p in request.topics[0].partitions] == [0, 1, 2, 3]
    for leader in (driver.leader, others[0]):
        leader.update(msgspec.structs.replace(driver.image, isr=(1, 2), partition_epoch=7))
    driver.runtime.advance(LAG_MS)
    assert len(driver.asked) == 1, "one request at a time"
    others[2].stop()
    decided = [ResponsePartitionData(partition_index=n, isr=[1], partition_epoch=7) for n in range(3)]
    answer.complete(
        AlterPartitionResponse(topics=[ResponseTopicData(topic_id=b"t" * 16, partitions=decided)])
    )
    assert [p.partition_index for p in driver.asked[-1][0].topics[0].partitions] == [0, 1]
    assert (driver.leader.isr, others[1].isr, others[2].isr) == ((1, 2), (1,), (1, 2))


def test_a_defect_of_one_leader_keeps_no_decision_from_the_others() -> None:
    driver = Driver((1, 2))
    leaders = [driver.leader]
    for number in (1, 2):
        host = Host()
        host.partition = TopicPartition("t", number)
        image = msgspec.structs.replace(driver.image, partition=number)
        host.leader = driver.replication.become_leader(cast("Any", host), image, 0)
        leaders.append(host.leader)

    def broken() -> None:
        raise RuntimeError("a defect")

    cast("Any", driver.host).high_watermark_moved = broken
    driver.runtime.advance(LAG_MS * 1.5 + 1)
    ((request, answer),) = driver.asked
    assert [p.partition_index for p in request.topics[0].partitions] == [0, 1, 2]
    decided = [ResponsePartitionData(partition_index=n, isr=[1], partition_epoch=7) for n in (0, 1)]
    answer.complete(
        AlterPartitionResponse(topics=[ResponseTopicData(topic_id=b"t" * 16, partitions=decided)])
    )
    assert leaders[1].isr == (1,)
    ((level, _, values),) = driver.events.events
    assert (level, values["partition"]) == ("error", "t-0")
    driver.runtime.advance(60)
    (again, _) = driver.asked[-1]
    assert [p.partition_index for p in again.topics[0].partitions] == [2], "it has no decision yet"


def test_a_defect_in_the_check_of_one_leader_leaves_the_others_checked() -> None:
    driver = Driver((1, 2))
    host = Host()
    host.partition = TopicPartition("t", 1)
    image = msgspec.structs.replace(driver.image, partition=1)
    host.leader = driver.replication.become_leader(cast("Any", host), image, 0)

    def broken(now_ms: float) -> None:
        raise RuntimeError("a defect")

    cast("Any", driver.leader).rules.shrinkage = broken
    driver.runtime.advance(LAG_MS * 1.5 + 1)
    ((request, _),) = driver.asked
    assert [p.partition_index for p in request.topics[0].partitions] == [1]
    assert driver.events.events[0][2]["partition"] == "t-0"


def test_a_controller_that_decides_on_no_change_is_told_of_once() -> None:
    """It is asked again every 50 ms, and a leader's high watermark may stand still meanwhile."""
    driver = Driver((1, 2))
    driver.runtime.advance(LAG_MS * 1.5 + 1)
    refusal = AlterPartitionResponse(error_code=int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    for number in range(1, 5):
        assert len(driver.asked) == number
        driver.asked[-1][1].complete(refusal)
        driver.runtime.advance(51)
    ((level, event, values),) = driver.events.events
    assert (level, values["partitions"]) == ("warning", 1)
    assert "ISR" in event
    assert "CLUSTER_AUTHORIZATION_FAILED" in values["error"]
    driver.asked[-1][1].fail(BrokerError(ErrorCode.REQUEST_TIMED_OUT))
    driver.runtime.advance(51)
    driver.decide(ErrorCode.UNKNOWN_SERVER_ERROR)
    pairs = [(values.get("partition"), values["error"]) for _, _, values in driver.events.events[1:]]
    assert len(pairs) == 2
    assert "REQUEST_TIMED_OUT" in pairs[0][1]
    assert pairs[1][0] == "t-0"


def test_a_change_whose_answer_is_lost_is_asked_again_within_seconds() -> None:
    """The high watermark of its leader may wait for the answer."""
    driver = Driver((1,))
    driver.leader.follower_fetched(2, 102, 10, 0)
    assert len(driver.asked) == 1
    assert driver.controller.timeouts == [5_000]


def test_where_the_controller_knows_more_the_image_is_waited_for() -> None:
    driver = Driver((1, 2))
    driver.runtime.advance(LAG_MS * 1.5 + 1)
    driver.decide(ErrorCode.INVALID_UPDATE_VERSION)
    driver.runtime.advance(LAG_MS * 3)
    assert len(driver.asked) == 1
    driver.leader.update(
        PartitionImage(
            partition=0, replicas=(1, 2, 3), isr=(1, 2), leader=1, leader_epoch=4, partition_epoch=9
        )
    )
    driver.runtime.advance(LAG_MS)
    assert len(driver.asked) == 2


def test_strangers_and_old_incarnations_are_refused() -> None:
    driver = Driver((1, 2))
    assert driver.leader.follower_fetched(9, 1, 0, 0) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    driver.leader.follower_fetched(2, 102, 0, 0)
    assert driver.leader.follower_fetched(2, 101, 0, 0) == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_forged_broker_epoch_keeps_no_follower_out() -> None:
    """As in Kafka, the image alone says which process of a broker is the present one: no request raises it."""
    driver = Driver((1, 2))
    driver.leader.log_end_moved()
    driver.leader.follower_fetched(2, 2**63 - 1, 0, 0)
    assert driver.leader.follower_fetched(2, 102, 10, 0) == ErrorCode.NONE
    assert driver.leader.high_watermark == 10
    driver.leader.follower_fetched(3, 2**63 - 1, 10, 0)
    assert driver.asked == [], "the image knows no such process"
    driver.leader.follower_fetched(3, 103, 10, 0)
    assert driver.wanted_isr() == [[(1, 101), (2, 102), (3, 103)]]


def test_an_earlier_process_of_a_registered_broker_is_refused() -> None:
    """KIP-903: its successor may have lost what it has written. The successor hasn't fetched yet."""
    driver = Driver((1,))
    driver.leader.log_end_moved()
    assert driver.leader.follower_fetched(2, 101, 10, 0) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert driver.leader.follower_fetched(2, -1, 10, 0) == ErrorCode.NONE, (
        "a broker older than KIP-903 has no epoch"
    )


def test_a_restarted_broker_joins_the_isr_only_after_its_own_fetch() -> None:
    driver = Driver((1,))
    driver.leader.log_end_moved()
    brokers = driver.controller.image.brokers
    brokers[2] = msgspec.structs.replace(brokers[2], epoch=110)
    driver.leader.follower_fetched(2, 109, 10, 0)
    assert driver.asked == []
    assert driver.leader.follower_fetched(2, 111, 10, 0) == ErrorCode.NONE, "our image is behind"
    assert driver.asked == [], "the controller would refuse it by our image's epoch"
    brokers[2] = msgspec.structs.replace(brokers[2], epoch=111)
    driver.leader.follower_fetched(2, 111, 10, 0)
    assert driver.wanted_isr() == [[(1, 101), (2, 111)]]


def test_where_the_image_has_no_broker_epochs_the_controller_is_told_the_fetchs() -> None:
    """It refuses the one of an earlier process (KIP-903, ZooKeeper mode)."""
    driver = Driver((1,))
    driver.leader.log_end_moved()
    brokers = driver.controller.image.brokers
    brokers[2] = msgspec.structs.replace(brokers[2], epoch=-1)
    assert driver.leader.follower_fetched(2, 110, 10, 0) == ErrorCode.NONE
    assert driver.wanted_isr() == [[(1, 101), (2, 110)]]


def test_the_low_watermark_is_the_lowest_log_start_of_live_replicas() -> None:
    driver = Driver((1, 2, 3))
    cast("Any", driver.host.log).log_start_offset = 6
    assert driver.leader.low_watermark == -1, "nothing is known of the followers yet"
    driver.leader.follower_fetched(2, 102, 10, 4)
    driver.leader.follower_fetched(3, 103, 10, 2)
    assert driver.leader.low_watermark == 2
    driver.leader.follower_fetched(3, 103, 10, 9)
    assert driver.leader.low_watermark == 4
    driver.leader.follower_fetched(2, 102, 10, 8)
    assert driver.leader.low_watermark == 6
    assert driver.host.low_watermarks == [-1, 2, 4, 6], "told whenever a follower's log start moved"
    driver.leader.follower_fetched(2, 102, 10, 8)
    assert len(driver.host.low_watermarks) == 4


def test_a_fenced_replica_holds_no_low_watermark_back() -> None:
    driver = Driver((1, 2))
    driver.leader.follower_fetched(2, 102, 10, 0)
    assert driver.leader.low_watermark == -1
    brokers = driver.controller.image.brokers
    brokers[3] = msgspec.structs.replace(brokers[3], fenced=True)
    assert driver.leader.low_watermark == 0


def test_the_preferred_read_replica_is_in_the_rack_and_in_the_isr() -> None:
    driver = Driver((1, 2, 3))
    brokers = driver.controller.image.brokers
    for broker_id, rack in ((1, "a"), (2, "b"), (3, "b")):
        brokers[broker_id] = msgspec.structs.replace(brokers[broker_id], rack=rack)
    leader = driver.leader
    assert leader.preferred_read_replica("b", 5) == -1, "no follower is known to have the offset"
    leader.follower_fetched(2, 102, 8, 3)
    leader.follower_fetched(3, 103, 9, 0)
    assert leader.preferred_read_replica("b", 5) == 3, "it has more"
    assert leader.preferred_read_replica("b", 10) == -1
    assert leader.preferred_read_replica("a", 5) == -1, "the leader is there itself"
    assert leader.preferred_read_replica("c", 5) == -1
    assert leader.preferred_read_replica("", 5) == -1
    leader.update(msgspec.structs.replace(driver.image, isr=(1, 2), partition_epoch=7))
    assert leader.preferred_read_replica("b", 5) == 2, "replica 3 is not in sync"
    assert leader.preferred_read_replica("b", 2) == -1, "its log starts later"


def test_after_a_stop_nothing_is_called_back() -> None:
    driver = Driver((1, 2))
    driver.runtime.advance(LAG_MS * 1.5 + 1)
    driver.leader.stop()
    driver.decide(isr=(1,), epoch=7)
    assert (driver.leader.isr, driver.host.moved) == ((1, 2), 0)
    driver.runtime.run(driver.replication.stop())
    driver.runtime.advance(LAG_MS * 3)
    assert len(driver.asked) == 1


def test_the_plugin_makes_it_and_shows_its_metrics() -> None:
    composition = SimpleNamespace(
        runtime=FakeRuntime(), config=BrokerConfig(), node_id=1, log=lambda name: Quiet()
    )
    plugin = Plugin()
    assert plugin.blumfeld_metrics() == ()
    made = plugin.blumfeld_make_replication(cast("Composition", composition))
    assert isinstance(made, IsrReplication)
    assert "ISR" in made.promise()
    assert [metric.read() for metric in plugin.blumfeld_metrics()] == [0, 0, 0]


def measured(driver: Driver) -> dict[str, float]:
    return {metric.name.removeprefix("blumfeld_"): metric.read() for metric in driver.replication.metrics()}


def test_replicas_that_leave_and_join_an_isr_are_counted() -> None:
    """By the controller's answer to this leader, and by an image that shows its own decision."""
    driver = Driver((1, 2))
    driver.leader.log_end_moved()
    driver.runtime.advance(LAG_MS * 1.5 + 1)
    driver.decide(isr=(1,), epoch=7)
    assert measured(driver) == {"isr_shrinks_total": 1, "isr_expands_total": 0, "replica_max_lag_records": 10}
    image = msgspec.structs.replace(driver.image, isr=(1, 2, 3), partition_epoch=8)
    driver.leader.update(image)
    driver.leader.update(image)
    assert measured(driver)["isr_expands_total"] == 2
    driver.leader.update(msgspec.structs.replace(image, isr=(1, 3), partition_epoch=9))
    assert measured(driver)["isr_shrinks_total"] == 2


def test_the_lag_is_that_of_the_slowest_follower() -> None:
    driver = Driver((1, 2))
    driver.leader.log_end_moved()
    driver.leader.follower_fetched(2, 102, 9, 0)
    assert measured(driver)["replica_max_lag_records"] == 10, "node 3 hasn't fetched yet"
    driver.leader.follower_fetched(3, 103, 4, 0)
    assert measured(driver)["replica_max_lag_records"] == 6
    driver.leader.stop()
    assert measured(driver)["replica_max_lag_records"] == 0
