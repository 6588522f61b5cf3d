"""The measurement of decisions: each kind of work is done, over several turns where it is large."""

from __future__ import annotations

from campaigns.bench.decisions import WORKS, measure, table_of


def test_all_work_is_done_and_counted() -> None:
    measures = measure(2_000, 1)
    assert [entry.outcome for entry in measures] == [""] * WORKS
    turns = {entry.work: entry.turns for entry in measures}
    assert turns["one ISR shrinks"] < 10
    assert turns["a broker is fenced"] > 1_500 // 128
    assert turns["a snapshot"] > 2_000 // 128
    assert table_of(measures).row_count == WORKS
