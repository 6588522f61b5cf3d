"""Kills of a broker under load: the table adds up, and a short run with real clients loses nothing."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from campaigns.clients.load.acknowledged import Account
from campaigns.group_kills.report import KillReport, table
from campaigns.group_kills.rounds import KINDS, Kills


def test_the_table_sums_up() -> None:
    report = KillReport({"settled": 2}, Account(acked=50), 100, 0, 0, 1, 300.0, 5.0, [])
    shown = Console(width=150, record=True, file=StringIO())
    shown.print(table({3: report, 4: report}))
    text = shown.export_text()
    assert "2 settled" in text
    assert "200" in text


@pytest.mark.slow
def test_a_killed_broker_keeps_its_records_and_what_groups_were_told(tmp_path: Path) -> None:
    """One kill of each kind, under librdkafka and kafka-python."""
    report = Kills(tmp_path, seed=0, rounds=len(KINDS), rate=200).run()
    assert report.wrong == []
    assert report.kills == dict.fromkeys(KINDS, 1)
    assert report.commits > 100
    assert report.account.acked > 100
