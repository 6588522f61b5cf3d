"""A small feed through a broker of this build, Spark and four readers, and a check that the harness finds faults."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from campaigns.archive import golden as module
from campaigns.archive.__main__ import main
from campaigns.archive.common.report import Report
from campaigns.archive.common.tallies import READERS

pytest.importorskip("pyspark")


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_every_reader_sees_what_the_json_says(tmp_path: Path) -> None:
    """Exit status 0 says that all checks of the table passed."""
    assert main(["golden", "--json", str(tmp_path / "report.json")]) == 0


def test_a_reader_that_sees_something_else_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen = {"trades": {"rows": Decimal(2), "price": Decimal("1.1")}}
    monkeypatch.setitem(READERS, "duckdb", lambda root: seen)
    report = Report("r")
    module.look(report, tmp_path, {"trades": {"rows": Decimal(2), "price": Decimal("1.10")}}, ("duckdb",))
    assert report.good
    module.look(report, tmp_path, {"trades": {"rows": Decimal(3)}}, ("duckdb",))
    assert report.checks[-1].wrong == "duckdb: trades.rows is 2, expected 3"


def test_a_reader_that_fails_is_wrong_and_not_the_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def torn(root: Path) -> object:
        raise OSError("too small to be a Parquet file")

    monkeypatch.setitem(READERS, "duckdb", torn)
    report = Report("r")
    module.look(report, tmp_path, {}, ("duckdb",))
    assert report.checks[0].wrong == "OSError: too small to be a Parquet file"
