"""Kills of a broker under load: the table adds up, and a short run with real clients loses nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from campaigns.group_kills.rounds import KINDS, Kills


@pytest.mark.slow
def test_a_killed_broker_keeps_its_records_and_what_groups_were_told(tmp_path: Path) -> None:
    """One kill of each kind, under librdkafka and kafka-python."""
    report = Kills(tmp_path, seed=0, rounds=len(KINDS), rate=200).run()
    assert report.wrong == []
    assert report.kills == dict.fromkeys(KINDS, 1)
    assert report.commits > 100
    assert report.account.acked > 100
