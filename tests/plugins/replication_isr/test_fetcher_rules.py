"""The rules of a fetcher, against a leader's sessions and by traces of one event after the other."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blumfeld.broker.fetch_sessions import FetchPartition, FetchSessions
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld_replication_isr.fetcher_rules import (
    EPOCH_MAX,
    FetcherRules,
    Key,
    OutOfRange,
    Position,
    SessionRequest,
    State,
    Verdict,
    out_of_range,
    verdict,
)

TOPIC = b"t" * 16
TRACES = Path(__file__).parents[2] / "traces"


def key(index: int) -> Key:
    return (TOPIC, index)


def position(offset: int, epoch: int = 1) -> Position:
    return Position(epoch, offset, epoch, 0)


class Trace:
    """Runs ``tests/traces/fetcher_*.txt``: events, and the requests that they lead to."""

    def __init__(self) -> None:
        self.rules = FetcherRules()

    def run(self, words: list[str]) -> str | None:
        """Do what a line says. Returns the request if it asks for one."""
        name, *rest = words
        numbers = [int(word) for word in rest]
        rules = self.rules
        match name:
            case "add":
                rules.add(key(numbers[0]), position(*numbers[1:]))
            case "moved":
                rules.moved(key(numbers[0]), position(*numbers[1:]))
            case "delay":
                rules.delay(key(numbers[0]), position(numbers[1]), numbers[2])
            case "remove" | "busy" | "wait":
                getattr(rules, name)(key(numbers[0]))
            case "wake":
                rules.wake(numbers[0])
            case "answered":
                rules.answered(numbers[0])
            case "refused":
                return "at once" if rules.refused(numbers[0]) else "after a pause"
            case "failed" | "missed":
                getattr(rules, name)()
            case "counts":
                return " ".join(str(n) for n in range(4) if rules.counts(key(n))) or "none"
            case "request":
                return text(rules.next_request())
            case _:
                raise AssertionError(f"no event {name!r}")
        return None


def text(request: SessionRequest | None) -> str:
    if request is None:
        return "none"
    positions = " ".join(f"{index}@{at.offset}/{at.leader_epoch}" for (_, index), at in request.positions)
    gone = " ".join(f"-{index}" for _, index in request.forgotten)
    return " ".join(f"{request.session_id}:{request.session_epoch} {positions} {gone}".split())


@pytest.mark.parametrize("path", sorted(TRACES.glob("fetcher_*.txt")), ids=lambda path: path.stem)
def test_trace(path: Path) -> None:
    trace = Trace()
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        event, _, expected = line.partition("#")[0].partition("->")
        if event.strip():
            outcome = trace.run(event.split())
            assert outcome == (expected.strip() or None), f"{path.name}, line {number}: {line.strip()}"


@pytest.mark.parametrize(
    ("code", "diverging", "expected"),
    [
        (ErrorCode.NONE, -1, Verdict.APPEND),
        (ErrorCode.NONE, 3, Verdict.TRUNCATE),
        (ErrorCode.NONE, 0, Verdict.TRUNCATE),
        (ErrorCode.OFFSET_OUT_OF_RANGE, -1, Verdict.LOOK_UP),
        (ErrorCode.FENCED_LEADER_EPOCH, -1, Verdict.WAIT),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, Verdict.BACK_OFF),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, Verdict.BACK_OFF),
        (ErrorCode.REPLICA_NOT_AVAILABLE, -1, Verdict.BACK_OFF),
        (ErrorCode.UNKNOWN_TOPIC_ID, -1, Verdict.BACK_OFF),
        (ErrorCode.KAFKA_STORAGE_ERROR, -1, Verdict.BACK_OFF),
        (ErrorCode.CORRUPT_MESSAGE, -1, Verdict.BACK_OFF),
        (999, -1, Verdict.BACK_OFF),
    ],
)
def test_what_an_answer_asks_for(code: int, diverging: int, expected: Verdict) -> None:
    assert verdict(code, diverging) is expected


def test_out_of_range() -> None:
    assert out_of_range(20, 0, 15) == OutOfRange(15, None)
    assert out_of_range(20, 30, 40) == OutOfRange(None, 30)
    assert out_of_range(20, 5, 20) == OutOfRange(None, None), "the leader has grown meanwhile"
    assert out_of_range(20, 20, 20) == OutOfRange(None, None)


def test_the_session_epoch_wraps_to_one() -> None:
    rules = FetcherRules()
    rules.add(key(0), position(0))
    rules.next_request()
    rules.answered(5)
    rules._session_epoch = EPOCH_MAX
    rules.next_request()
    rules.answered(5)
    assert rules.next_request() == SessionRequest(5, 1, [], [])


def test_an_idle_fetcher_of_many_partitions_asks_nothing() -> None:
    rules = FetcherRules()
    for index in range(10_000):
        rules.add(key(index), position(0))
    first = rules.next_request()
    assert first is not None
    assert len(first.positions) == 10_000
    rules.answered(9)
    rules.busy(key(7))
    rules.moved(key(7), position(1))
    assert rules.next_request() == SessionRequest(9, 1, [(key(7), position(1))], [])
    rules.answered(9)
    assert rules.next_request() == SessionRequest(9, 2, [], [])


Event = st.one_of(
    st.tuples(st.just("add"), st.integers(0, 3), st.integers(0, 5)),
    st.tuples(st.just("remove"), st.integers(0, 3), st.just(0)),
    st.tuples(st.just("moved"), st.integers(0, 3), st.integers(0, 5)),
    st.tuples(st.just("busy"), st.integers(0, 3), st.just(0)),
    st.tuples(st.just("wait"), st.integers(0, 3), st.just(0)),
    st.tuples(st.just("delay"), st.integers(0, 3), st.integers(0, 30)),
    st.tuples(st.just("fetch"), st.just(0), st.integers(0, 10)),
    st.tuples(st.just("lost on the way"), st.just(0), st.just(0)),
    st.tuples(st.just("answer lost"), st.just(0), st.just(0)),
    st.tuples(st.just("leader forgets"), st.just(0), st.just(0)),
)


@given(st.lists(Event, max_size=80))
def test_the_leaders_session_is_what_the_follower_wants(events: list[tuple[str, int, int]]) -> None:
    """Whatever gets lost: after an answer the session has exactly the partitions that are fetched, as they are."""
    rules, wanted, now = FetcherRules(), dict[Key, Position](), 0
    ids = iter(range(1, 1_000))
    leader = FetchSessions(lambda: next(ids))
    for name, index, value in events:
        at = key(index)
        known = rules.state(at) is not None
        now += 1
        if name == "add" and not known:
            wanted[at] = position(value)
            rules.add(at, wanted[at])
        elif name == "remove":
            rules.remove(at)
            wanted.pop(at, None)
        elif name == "leader forgets":
            leader = FetchSessions(lambda: next(ids))
        elif known and name == "delay":
            wanted[at] = position(value % 6)
            rules.delay(at, wanted[at], now + value)
        elif known and name == "moved":
            wanted[at] = position(value)
            rules.moved(at, wanted[at])
        elif known and name in ("busy", "wait"):
            getattr(rules, name)(at)
        elif name in ("fetch", "lost on the way", "answer lost"):
            now += value
            due = rules.wake(now)
            assert due is None or due > now
            fetch(rules, leader, wanted, lost=name)


def fetch(rules: FetcherRules, leader: FetchSessions, wanted: dict[Key, Position], lost: str) -> None:
    request = rules.next_request()
    ready = {place: at for place, at in wanted.items() if rules.state(place) is State.FETCHING}
    if request is None:
        assert not ready
        return
    if lost == "lost on the way":
        rules.failed()
        return
    fetch_partitions = [
        FetchPartition(*place, at.offset, 1, at.leader_epoch) for place, at in request.positions
    ]
    try:
        plan = leader.begin(
            request.session_id,
            request.session_epoch,
            fetch_partitions,
            request.forgotten,
            uses_topic_ids=True,
            privileged=True,
            now_ms=0,
        )
    except BrokerError as error:
        at_once = rules.refused(error.code)
        assert at_once
        return
    session_id = plan.session.id if plan.session is not None else leader.finish_full(plan, 0)
    if lost == "answer lost":
        rules.failed()
        return
    assert {partition.key: partition.fetch_offset for partition in plan.partitions} == {
        place: at.offset for place, at in ready.items()
    }
    assert all(rules.counts(place) for place in ready)
    assert not any(rules.counts(key(n)) for n in range(4) if key(n) not in ready)
    rules.answered(session_id)
