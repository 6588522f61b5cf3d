"""Spark's checkpoint seen from outside; files as Spark writes them, no Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from blumfeld_sink_spark.errors import ArchiveError
from blumfeld_sink_spark.records import OffsetRange
from blumfeld_sink_spark.spark.checkpoint import Checkpoint, Identity, parse_offsets
from blumfeld_sink_spark.spark.run.start_offsets import check_state


def _identity() -> Identity:
    return Identity(
        query="q-1", name="q", root="/r", topics=("t",), topic_pattern="", starting={"t": {"0": 7}}
    )


def _log(folder: Path, batch: int, offsets: str) -> None:
    (folder / "offsets").mkdir(parents=True, exist_ok=True)
    (folder / "offsets" / str(batch)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{offsets}')


def _done(folder: Path, batch: int) -> None:
    (folder / "commits").mkdir(parents=True, exist_ok=True)
    (folder / "commits" / str(batch)).write_text("v1\n{}")


def test_ranges_are_those_between_two_lines_of_the_log(tmp_path: Path) -> None:
    checkpoint = Checkpoint(str(tmp_path))
    checkpoint.create(_identity())
    _log(tmp_path, 0, '{"t":{"0":10}}')
    _log(tmp_path, 1, '{"t": {"0": 15, "1": 4}}')
    assert checkpoint.planned(0) == (OffsetRange("t", 0, 7, 10),)
    assert checkpoint.planned(1) == (OffsetRange("t", 0, 10, 15),)
    assert checkpoint.planned(1, fresh=0) == (OffsetRange("t", 0, 10, 15), OffsetRange("t", 1, 0, 4))


def test_a_new_folder_has_no_identity_and_a_written_one_comes_back(tmp_path: Path) -> None:
    checkpoint = Checkpoint(str(tmp_path / "new"))
    assert (checkpoint.identity(), checkpoint.last_planned(), checkpoint.last_done()) == (None, -1, -1)
    checkpoint.create(_identity())
    assert checkpoint.identity() == _identity()


def test_the_checkpoint_of_another_query_is_refused(tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text('{"id":"x"}')
    with pytest.raises(ArchiveError, match="another Spark query"):
        Checkpoint(str(tmp_path)).identity()


@pytest.mark.parametrize("text", ["", "v1\n{}", "v3\n{}\n{}", "v1\n{}\nnothing", 'v1\n{}\n{"t":5}'])
def test_what_is_no_offset_log_is_refused(text: str) -> None:
    with pytest.raises(ArchiveError, match="offsets/3 isn't an offset log"):
        parse_offsets(text, "offsets/3")


def test_a_log_that_is_gone_is_told(tmp_path: Path) -> None:
    Checkpoint(str(tmp_path)).create(_identity())
    _log(tmp_path, 3, "{}")
    with pytest.raises(ArchiveError, match="offsets/4 can't be read"):
        Checkpoint(str(tmp_path)).planned(4)


@pytest.mark.parametrize("committed", [2, 3])
def test_ledger_and_checkpoint_of_one_history_agree(tmp_path: Path, committed: int) -> None:
    """A crash may leave the last batch planned, published or noted as done."""
    for batch in range(4):
        _log(tmp_path, batch, "{}")
    for batch in range(3):
        _done(tmp_path, batch)
    check_state(Checkpoint(str(tmp_path)), committed, "q")


def test_a_checkpoint_ahead_of_the_ledger_and_one_behind_it_are_refused(tmp_path: Path) -> None:
    for batch in range(4):
        _log(tmp_path, batch, "{}")
        _done(tmp_path, batch)
    with pytest.raises(ArchiveError, match="batch 3 as done, but the ledger of q ends with 2"):
        check_state(Checkpoint(str(tmp_path)), 2, "q")
    with pytest.raises(ArchiveError, match="old copy"):
        check_state(Checkpoint(str(tmp_path)), 4, "q")
