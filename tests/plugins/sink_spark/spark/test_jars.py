"""Finding the connector's jars; no Spark is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from blumfeld_sink_spark.errors import SettingsError
from blumfeld_sink_spark.spark.runtime import jars

SET = (
    "spark-sql-kafka-0-10_2.13-4.2.0.jar",
    "spark-token-provider-kafka-0-10_2.13-4.1.0-preview1.jar",
    "kafka-clients-3.9.2.jar",
    "commons-pool2-2.13.1.jar",
)


def _touch(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).touch()
    return folder


def test_a_set_in_a_folder_is_found(tmp_path: Path) -> None:
    jar_set = jars.find_jars(str(_touch(tmp_path, *SET, "other-1.0.jar")), "4.3.0", {}, tmp_path)
    assert jar_set is not None
    assert jar_set.connector == "4.2.0"
    assert [Path(path).name for path in jar_set.paths] == list(SET)


@pytest.mark.parametrize(
    ("connector", "pyspark", "fit"),
    [
        ("4.3.0", "4.3.0", True),
        ("4.2.0", "4.3.0", True),
        ("4.0.0", "4.3.0", False),
        ("4.3.0", "4.2.0", False),
    ],
)
def test_a_connector_is_of_this_minor_release_or_the_one_before(
    connector: str, pyspark: str, fit: bool
) -> None:
    jar_set = jars.choose(
        [Path(f"spark-sql-kafka-0-10_2.13-{connector}.jar"), *(Path(name) for name in SET[1:])], pyspark
    )
    assert (jar_set is not None) == fit


def test_the_newest_that_fits_is_taken_with_clients_of_the_third_line() -> None:
    extra = ("spark-sql-kafka-0-10_2.13-4.3.0.jar", "kafka-clients-4.3.1.jar", "kafka-clients-3.9.10.jar")
    jar_set = jars.choose([Path(name) for name in (*SET, *extra)], "4.3.1")
    assert jar_set is not None
    assert (jar_set.connector, jar_set.versions["kafka-clients"]) == ("4.3.0", "3.9.10")


def test_ivys_names_are_known() -> None:
    prefixes = ("org.apache.spark_", "org.apache.spark_", "org.apache.kafka_", "org.apache.commons_")
    jar_set = jars.choose([Path(a + b) for a, b in zip(prefixes, SET, strict=True)], "4.2.0")
    assert jar_set is not None
    assert jar_set.versions["commons-pool2"] == "2.13.1"


def test_places_are_looked_at_in_turn(tmp_path: Path) -> None:
    assert jars.find_jars("", "4.3.0", {"XDG_CACHE_HOME": str(tmp_path)}, tmp_path) is None
    for artefact, name in zip(("spark/" + jars.CONNECTOR, "spark/" + jars.TOKENS), SET[:2], strict=True):
        _touch(tmp_path / ".m2" / "repository" / "org" / "apache" / artefact / "v", name)
    _touch(tmp_path / ".m2/repository/org/apache/kafka/kafka-clients/3.9.2", SET[2])
    _touch(tmp_path / ".m2/repository/org/apache/commons/commons-pool2/2.13.1", SET[3])
    jar_set = jars.find_jars("", "4.3.0", {"XDG_CACHE_HOME": str(tmp_path)}, tmp_path)
    assert jar_set is not None
    assert jar_set.origin == "~/.m2"
    given = {"BLUMFELD_SPARK_JARS": str(_touch(tmp_path / "given", *SET))}
    jar_set = jars.find_jars("", "4.3.0", given, tmp_path)
    assert jar_set is not None
    assert jar_set.origin == "$BLUMFELD_SPARK_JARS"


def test_a_folder_that_is_given_must_have_a_set(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"archive\.jars.*kafka-clients-VERSION\.jar"):
        jars.find_jars(str(_touch(tmp_path, *SET[:3])), "4.3.0", {}, tmp_path)
