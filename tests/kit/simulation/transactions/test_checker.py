"""Histories that no broker may leave behind, and those that Kafka allows."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from blumfeld.spi.storage import TopicPartition
from blumfeld_kit.simulation.transactions.checker import AnomalyError, check
from blumfeld_kit.simulation.transactions.histories import (
    Append,
    GroupView,
    History,
    Incarnation,
    Outcome,
    Transaction,
    View,
)

P, Q = TopicPartition("p", 0), TopicPartition("q", 0)


class Story:
    """Builds a history: values are ``<transaction>.<number>``, and each append takes the next offset."""

    def __init__(self) -> None:
        self.history = History(
            transactions=[], incarnations=[], everything={P: [], Q: []}, committed={P: [], Q: []}
        )

    def incarnation(self, name: str, asked_s: float) -> Incarnation:
        incarnation = Incarnation(
            name=name, number=len(self.history.incarnations), asked_s=asked_s, known_s=asked_s + 0.1
        )
        self.history.incarnations.append(incarnation)
        return incarnation

    def transaction(
        self,
        by: Incarnation,
        began_s: float,
        outcome: Outcome,
        *partitions: TopicPartition,
        group: str = "",
        offsets: dict[TopicPartition, int] | None = None,
    ) -> Transaction:
        """One that appends a value to each of the partitions, half a second after the other, and ends behind them."""
        transaction = Transaction(
            number=len(self.history.transactions),
            incarnation=by,
            generation=2,
            began_s=began_s,
            outcome=outcome,
            ended_s=began_s + 5.0,
            group=group,
            offsets=offsets or {},
        )
        self.history.transactions.append(transaction)
        for nth, partition in enumerate(partitions):
            sent_s = began_s + nth / 2
            transaction.appends.append(
                Append(
                    partition=partition,
                    value=f"{transaction.number}.{nth}".encode(),
                    sent_s=sent_s,
                    acked_s=sent_s + 0.1,
                    offset=len(self.history.everything[partition]),
                )
            )
            self.history.everything[partition].append(
                (transaction.appends[-1].offset, transaction.appends[-1].value)
            )
            if outcome is Outcome.COMMITTED:
                self.history.committed[partition].append(self.history.everything[partition][-1])
        return transaction


def two_committed_and_one_aborted() -> Story:
    story = Story()
    by = story.incarnation("a", 0.0)
    story.transaction(by, 1.0, Outcome.COMMITTED, P, Q)
    story.transaction(by, 10.0, Outcome.ABORTED, P)
    story.transaction(by, 20.0, Outcome.COMMITTED, P)
    story.history.views.append(View(reader="r", partition=P, position=2, seen=[(0, b"0.0")]))
    return story


def test_a_right_history_has_no_anomaly() -> None:
    check(two_committed_and_one_aborted().history)


def test_an_unknown_outcome_may_be_either_but_not_half() -> None:
    for shown in ([], [P, Q]):
        story = Story()
        transaction = story.transaction(story.incarnation("a", 0.0), 1.0, Outcome.UNKNOWN, P, Q)
        for partition in shown:
            story.history.committed[partition] = list(story.history.everything[partition])
        check(story.history)
    story.history.committed[Q] = []
    with pytest.raises(AnomalyError, match="G1b: half of transaction 0"):
        check(story.history)
    transaction.appends[1].sent_s = 0.5
    story.history.excused_s[Q] = 0.6
    check(story.history)  # that partition may have lost it


def test_a_partition_that_may_have_lost_a_marker_may_show_the_aborted() -> None:
    """It has the values of an aborted transaction, and lost the marker. The marker of the next one committed them."""
    story = two_committed_and_one_aborted()
    story.history.committed[P] = list(story.history.everything[P])
    with pytest.raises(AnomalyError, match="G1a"):
        check(story.history)
    story.history.excused_s[P] = 9.9
    with pytest.raises(AnomalyError, match="G1a"):
        check(story.history)  # the loss was before
    story.history.excused_s[P] = 15.1
    story.history.views.clear()  # as an excuse does
    check(story.history)


def test_open_transactions_may_interleave_as_kafka_allows() -> None:
    """Writers are not isolated: two transactions stand in opposite orders in two lists."""
    story = Story()
    first = story.transaction(story.incarnation("a", 0.0), 1.0, Outcome.COMMITTED)
    second = story.transaction(story.incarnation("b", 0.0), 1.0, Outcome.COMMITTED)
    for nth, (owner, partition) in enumerate([(first, P), (second, P), (second, Q), (first, Q)]):
        value = f"{owner.number}.{nth}".encode()
        offset = len(story.history.everything[partition])
        owner.appends.append(Append(partition=partition, value=value, sent_s=1.0, acked_s=4.0, offset=offset))
        story.history.everything[partition].append((offset, value))
        story.history.committed[partition].append((offset, value))
    check(story.history)
    first.appends[1].sent_s, second.appends[1].acked_s = 1.5, 9.0
    check(story.history)
    first.appends[1].acked_s, second.appends[1].sent_s = 2.0, 3.0
    story.history.everything[Q].reverse()
    story.history.everything[Q] = [(nth, value) for nth, (_, value) in enumerate(story.history.everything[Q])]
    story.history.committed[Q] = list(story.history.everything[Q])
    first.appends[1].offset, second.appends[1].offset = 0, 1
    check(story.history)


def append_of(story: Story, number: int) -> Append:
    return story.history.transactions[number].appends[0]


def reads(story: Story, number: int) -> None:
    """The first transaction was made of what another one appended."""
    story.history.transactions[0].reads[append_of(story, number).value] = None


def _lost(story: Story) -> None:
    story.history.committed[P] = story.history.committed[P][:1]
    story.history.everything[P] = story.history.everything[P][:2]


def _behind_a_later_one(story: Story) -> None:
    other = story.incarnation("b", 0.0)
    late = story.transaction(other, 30.0, Outcome.COMMITTED, P)
    late.appends[0].sent_s, late.appends[0].acked_s = 2.0, 3.0


def _circle(story: Story) -> None:
    first, _, third = story.history.transactions
    first.reads[third.appends[0].value] = None
    third.reads[first.appends[0].value] = None


@pytest.mark.parametrize(
    ("kind", "spoil"),
    [
        ("lost append", _lost),
        ("lost append", lambda story: setattr(append_of(story, 2), "offset", 7)),
        ("duplicated append", lambda story: story.history.everything[P].append((3, b"2.0"))),
        ("garbage", lambda story: story.history.everything[P].append((3, b"nobody's"))),
        ("G1a", lambda story: story.history.committed[P].insert(1, (1, b"1.0"))),
        ("G1a", lambda story: setattr(append_of(story, 2), "late", True)),
        ("G1b", lambda story: story.history.committed[Q].clear()),
        ("G1a", lambda story: story.history.views[0].seen.append((1, b"1.0"))),
        ("G1b", lambda story: story.history.views[0].seen.clear()),  # it passed an open one
        ("G1b", lambda story: story.history.everything[P].pop(0)),
        ("order", lambda story: story.history.transactions.reverse()),
        ("G0", _behind_a_later_one),
        ("zombie", lambda story: story.incarnation("a", 15.0)),
        ("G1c", _circle),
        ("G1c", lambda story: reads(story, 2)),  # what was appended after it had ended
        ("G1c", lambda story: reads(story, 0)),  # its own
    ],
)
def test_an_anomaly_is_found(kind: str, spoil: Callable[[Story], object]) -> None:
    story = two_committed_and_one_aborted()
    spoil(story)
    with pytest.raises(AnomalyError) as raised:
        check(story.history)
    assert raised.value.kind == kind


def relayed() -> Story:
    """A group has worked off the first record of P, and its offset is 1."""
    story = Story()
    story.transaction(story.incarnation("a", 0.0), 1.0, Outcome.COMMITTED, P)
    relay = story.transaction(
        story.incarnation("relay", 0.0), 10.0, Outcome.COMMITTED, Q, group="g", offsets={P: 1}
    )
    relay.appends[0].source = (P, 0)
    relay.reads[b"0.0"] = None
    story.history.groups.append(GroupView(name="g", offsets={P: 1}))
    return story


def test_a_record_is_worked_off_exactly_once() -> None:
    check(relayed().history)
    story = relayed()
    story.history.committed[Q], story.history.everything[Q] = [], []
    relay = story.history.transactions[1]
    relay.outcome, relay.appends[0].acked_s = Outcome.UNKNOWN, None
    with pytest.raises(AnomalyError, match=r"made nothing of b'0\.0'"):
        check(story.history)
    story.history.groups[0] = GroupView(name="g", offsets={P: 1}, ignored=frozenset([b"0.0"]))
    check(story.history)


def _twice(story: Story) -> None:
    again = story.transaction(
        story.history.incarnations[1], 20.0, Outcome.COMMITTED, Q, group="g", offsets={P: 1}
    )
    again.appends[0].source = (P, 0)


def _offset_lost(story: Story) -> None:
    story.history.groups[0].offsets[P] = 0


@pytest.mark.parametrize("spoil", [_twice, _offset_lost])
def test_offsets_equal_what_the_outputs_say(spoil: Callable[[Story], None]) -> None:
    story = relayed()
    spoil(story)
    with pytest.raises(AnomalyError) as raised:
        check(story.history)
    assert raised.value.kind == "exactly once"
