"""Kills under groups: the account bites, and a short run of it with real clients loses nothing."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from campaigns.group_kills.__main__ import table
from campaigns.group_kills.ledger import Epochs, GroupLedger
from campaigns.group_kills.rounds import KINDS, GroupKilling, KillReport

AT = ("t", 0)


def test_a_commit_that_goes_back_is_told() -> None:
    """Also one that is gone altogether; of two promises the higher counts, however late the lower one was heard."""
    ledger = GroupLedger()
    ledger.commit("g", AT, 7)
    ledger.commit("g", AT, 5)
    ledger.commit("g", ("t", 1), 3)
    ledger.commit("other", AT, 9)
    promised = ledger.promised("g")
    assert promised == {AT: 7, ("t", 1): 3}
    ledger.check_committed("g", promised, {AT: 7, ("t", 1): 4})
    assert (ledger.went_back, ledger.wrong, ledger.commits) == (0, [], 4)
    ledger.check_committed("g", promised, {AT: 6})
    assert ledger.went_back == 2
    assert ledger.wrong == ["g: t-0 went back from 7 to 6", "g: t-1 went back from 3 to -1"]


def test_records_that_nobody_consumed_are_told() -> None:
    """At the beginning, between two runs, within one, at the end; twice is allowed."""
    ledger = GroupLedger()
    ledger.check_consumed("g", {AT: [(5, 9, 5), (0, 4, 5), (3, 6, 4)]}, {AT: 10})
    assert (ledger.skipped, ledger.doubled, ledger.wrong) == (0, 4, [])
    ledger.check_consumed("g", {AT: [(1, 3, 3), (5, 6, 2)]}, {AT: 8})
    assert ledger.skipped == 3
    assert len(ledger.wrong) == 3
    ledger.check_consumed("g", {AT: [(0, 7, 7)]}, {AT: 8, ("t", 1): 2})
    assert ledger.skipped == 3 + 8 + 2


@pytest.mark.parametrize(
    ("after", "complaint"),
    [
        (Epochs("Stable", 4, {"a": 4, "b": 4}), None),
        (Epochs("Stable", 5, {"a": 5, "b": 4}), None),
        (Epochs("Stable", 3, {"a": 4, "b": 4}), "epoch went back from 4 to 3"),
        (Epochs("Stable", 4, {"a": 3, "b": 4}), "member a went back from epoch 4 to 3"),
        (Epochs("Stable", 4, {"a": 4}), "member b is not there any more"),
        (Epochs("Stable", 4, {"a": 4, "b": 4, "c": 4}), "member c was not there before"),
    ],
)
def test_a_group_that_did_not_come_back_as_it_was_is_told(after: Epochs, complaint: str | None) -> None:
    """KIP-848: its members needn't join again."""
    ledger = GroupLedger()
    ledger.check_epochs("g", Epochs("Stable", 4, {"a": 4, "b": 4}), after)
    assert ledger.wrong == ([] if complaint is None else [f"g: {complaint}"])


def test_the_table_sums_up() -> None:
    report = KillReport({"settled": 2}, 100, 0, 50, 0, 1, 300.0, 5.0, [])
    shown = Console(width=150, record=True, file=StringIO())
    shown.print(table({3: report, 4: report}))
    text = shown.export_text()
    assert "2 settled" in text
    assert "200" in text


@pytest.mark.slow
def test_a_killed_broker_keeps_what_groups_were_told(tmp_path: Path) -> None:
    """One kill of each kind, under librdkafka and kafka-python."""
    report = GroupKilling(tmp_path, seed=0, rounds=len(KINDS), rate=200).run()
    assert report.wrong == []
    assert report.kills == dict.fromkeys(KINDS, 1)
    assert report.commits > 100
    assert report.consumed > 100
