"""The choice of a reader; no Spark is started."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

import pyspark

from blumfeld_sink_spark.errors import ArchiveError, SettingsError
from blumfeld_sink_spark.settings import ArchiveSettings
from blumfeld_sink_spark.spark.run import readers
from blumfeld_sink_spark.spark.run.readers import choose
from blumfeld_sink_spark.spark.runtime.jars import CONNECTOR, Jars

pytestmark = pytest.mark.archive

Finding = Callable[[str | None], None]


@pytest.fixture
def install_connector(monkeypatch: pytest.MonkeyPatch) -> Finding:
    """Returns a function that sets the version of the connector on this machine, or that there is none."""

    def says(version: str | None) -> None:
        jars = Jars(("a.jar",), {CONNECTOR: version}, "a folder") if version else None
        monkeypatch.setattr(readers, "connector_jars", lambda settings: jars)

    return says


def test_auto_takes_the_connector_of_this_release_and_else_lets_tasks_read(
    install_connector: Finding,
) -> None:
    older = "3.5.0"
    for version, reader in ((None, "direct"), (older, "direct"), (pyspark.__version__, "jvm")):
        install_connector(version)
        assert choose(ArchiveSettings(), "run").reader == reader


def test_auto_takes_jars_that_were_named_whatever_their_release(
    install_connector: Finding, tmp_path: Path
) -> None:
    install_connector("3.5.0")
    assert choose(ArchiveSettings(jars=str(tmp_path)), "once").reader == "jvm"


def test_what_ends_at_an_offset_is_not_read_by_the_connector(install_connector: Finding) -> None:
    install_connector(pyspark.__version__)
    assert choose(ArchiveSettings(), "backfill").reader == "direct"
    with pytest.raises(SettingsError, match="allowed: python, direct, auto"):
        choose(ArchiveSettings(reader="jvm"), "backfill")


def test_a_connector_that_was_asked_for_and_is_not_there_is_told(install_connector: Finding) -> None:
    install_connector(None)
    with pytest.raises(ArchiveError, match="or take reader = direct"):
        choose(ArchiveSettings(reader="jvm"), "once")
