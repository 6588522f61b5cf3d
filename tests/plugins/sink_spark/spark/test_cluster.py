"""Executors in processes of their own: their files go to the driver's root, and they leave no work folder behind."""

from __future__ import annotations

from pathlib import Path

import pyspark
import pytest

from blumfeld.testing.embedded import EmbeddedBroker
from blumfeld_sink_spark.settings import ArchiveSettings, absolute
from campaigns.archive.common.process import Command, archive_command
from tests.plugins.sink_spark.spark_tools import make_topic, produce


def test_paths_are_absolute_before_executors_hear_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    absolute_settings = absolute(ArchiveSettings(topics=("t",), root="archive", schema_registry="http://x/y"))
    assert (absolute_settings.root, absolute_settings.schema_registry) == (
        str(tmp_path / "archive"),
        "http://x/y",
    )
    assert absolute_settings.checkpoint == ""
    assert absolute(ArchiveSettings(topics=("t",), root="s3://a/b", checkpoint="c")).checkpoint == str(
        tmp_path / "c"
    )


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_a_relative_root_is_the_drivers_and_work_is_temporary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = Path(pyspark.__file__).parent / "work"
    before = set(work.iterdir()) if work.exists() else set()
    monkeypatch.chdir(tmp_path)
    with EmbeddedBroker() as broker:
        make_topic(broker.bootstrap_servers, "ticks")
        produce(broker.bootstrap_servers, "ticks", 300)
        command = [*archive_command("once"), "--topics", "ticks", "--root", "archive"]
        command += ["--bootstrap", broker.bootstrap_servers, "--master", "local-cluster[1,1,1024]"]
        done = Command([*command, "--set", "spark.driver.memory=1g"], tmp_path / "once").wait(240)
    assert done.status == 0, done.said
    assert len(list((tmp_path / "archive" / "raw").rglob("*.parquet"))) == 1
    assert (set(work.iterdir()) if work.exists() else set()) == before
