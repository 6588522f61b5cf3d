"""The rules, against a model that keeps every single offset."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given, settings

from blumfeld_sink_spark.ledger import rules
from blumfeld_sink_spark.ledger.rules import Chain, Span, Spans
from blumfeld_sink_spark.records import CommitRecord, OffsetRange
from tests.everyday import examples

from .ledger_tools import record_of

offsets = st.integers(0, 30)


@st.composite
def ranges(draw: st.DrawFn) -> OffsetRange:
    start = draw(offsets)
    return OffsetRange("t", draw(st.integers(0, 1)), start, start + draw(st.integers(1, 6)))


@st.composite
def records(draw: st.DrawFn) -> CommitRecord:
    taken = sorted(draw(st.lists(ranges(), max_size=2)))
    lost = tuple(sorted(draw(st.lists(ranges(), max_size=1))))
    return record_of(draw(st.sampled_from("ab")), draw(st.integers(0, 4)), *taken, lost=lost)


class Model:
    """The rules over single offsets: a simple model of which records the ledger accepts."""

    def __init__(self) -> None:
        self.taken: dict[tuple[int, int], str] = {}
        self.batch: dict[str, int] = {}
        self.end: dict[tuple[str, int], int] = {}

    def allows(self, record: CommitRecord) -> bool:
        if record.batch != self.batch.get(record.query, -1) + 1:
            return False
        mine = [(span.partition, offset) for span in record.ranges for offset in range(span.start, span.end)]
        if len(set(mine)) < len(mine) or any(offset in self.taken for offset in mine):
            return False
        lost = {(span.partition, offset) for span in record.lost for offset in range(span.start, span.end)}
        known = set(mine) | lost
        for partition in {partition for partition, _ in known}:
            here = [offset for where, offset in known if where == partition]
            end = self.end.get((record.query, partition), min(here))
            if any(where == partition and offset < end for where, offset in mine):
                return False
            if any((partition, offset) not in known for offset in range(end, max(here))):
                return False
        return True

    def take(self, record: CommitRecord) -> None:
        self.batch[record.query] = record.batch
        for span in record.ranges:
            self.taken.update(
                {(span.partition, offset): record.query for offset in range(span.start, span.end)}
            )
        for span in (*record.ranges, *record.lost):
            key = (record.query, span.partition)
            self.end[key] = max(self.end.get(key, 0), span.end)


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(records(), max_size=25))
def test_the_rules_let_in_what_the_model_lets_in(tried: list[CommitRecord]) -> None:
    model = Model()
    chains = {query: Chain(query) for query in "ab"}
    covered: dict[rules.Partition, Spans] = {}
    kept: list[CommitRecord] = []
    for record in tried:
        chain = chains[record.query]
        wrong = rules.follows(chain, record) or rules.overlap(covered, record.ranges)
        assert (wrong is None) == model.allows(record), (record, wrong)
        if wrong is None:
            rules.advance(chain, covered, record)
            model.take(record)
            kept.append(record)
    query_by_offset = {
        (partition, offset): span.query
        for (_, partition), spans in covered.items()
        for span in spans
        for offset in range(span.start, span.end)
    }
    assert query_by_offset == model.taken
    problems = rules.problems(sorted(kept, key=lambda record: (record.query, record.batch)))
    assert all("lies between" in problem for problem in problems), problems


@given(st.lists(st.tuples(offsets, st.integers(1, 4)), max_size=12))
def test_an_overlap_is_found_wherever_it_is(tried: list[tuple[int, int]]) -> None:
    spans = Spans()
    taken: set[int] = set()
    for start, length in tried:
        wanted = set(range(start, start + length))
        there = spans.overlapping(start, start + length)
        assert (there is not None) == bool(wanted & taken)
        if there is None:
            spans.add(start, start + length, "q")
            taken |= wanted


def chain_of(*taken: OffsetRange) -> list[CommitRecord]:
    return [record_of("q", batch, span) for batch, span in enumerate(taken)]


def test_all_that_is_wrong_is_named() -> None:
    good = chain_of(OffsetRange("t", 0, 0, 5), OffsetRange("t", 0, 5, 9))
    assert rules.problems(good) == []
    assert "can't follow batch -1" in rules.problems(good[1:])[0]
    overlapping = [*good, record_of("r", 0, OffsetRange("t", 0, 8, 12))]
    assert "overlaps 0..9, which query q" in rules.problems(overlapping)[0]
    (hole,) = rules.problems([*good, record_of("r", 0, OffsetRange("t", 0, 11, 12))])
    assert hole == "t-0: 9..11 lies between what is covered and is in no record"
    lost = (OffsetRange("t", 0, 9, 11),)
    assert rules.problems([*good, record_of("r", 0, OffsetRange("t", 0, 11, 12), lost=lost)]) == []


def test_a_range_must_be_one() -> None:
    assert "isn't a range" in str(rules.follows(Chain("q"), record_of("q", 0, OffsetRange("t", 0, 5, 5))))
    assert "isn't a range" in str(rules.follows(Chain("q"), record_of("q", 0, OffsetRange("t", 0, -1, 5))))


def test_spans_of_one_query_that_touch_are_one() -> None:
    """Consecutive batches share a span, so a year of them takes little memory."""
    spans = Spans()
    for start in range(0, 1000, 10):
        spans.add(start, start + 10, "q")
    spans.add(1000, 1010, "r")
    assert list(spans) == [Span(0, 1000, "q"), Span(1000, 1010, "r")]
