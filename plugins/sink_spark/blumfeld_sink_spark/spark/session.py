"""A Spark session for the archive: on loopback, quiet, in UTC, with a Java and the connector's jars."""

from __future__ import annotations

import os
import sys
import tempfile
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyspark

from blumfeld_sink_spark.errors import ArchiveError
from blumfeld_sink_spark.settings import ArchiveSettings
from blumfeld_sink_spark.spark.fetch import BATCH_ROWS
from blumfeld_sink_spark.spark.jars import Jars, find_jars
from blumfeld_sink_spark.spark.java import Java, cache_folder, find_java

OLDEST = (4, 2)
"""The first pyspark whose Python sources can be told how much to read."""

_QUIET = """rootLogger.level = off
rootLogger.appenderRef.none.ref = none
appender.none.type = Null
appender.none.name = none
"""


def open_session(settings: ArchiveSettings, jars: Jars | None, java: Java | None = None) -> Any:
    """A session of this archive. One JVM may hold one at a time.

    :raises ArchiveError: no Java that fits, pyspark is too old, or the JVM doesn't start
    """
    check_pyspark()
    java = java or find_java()
    os.environ["JAVA_HOME"] = java.home
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(f"blumfeld archive {settings.name}").master(settings.master)
    for key, value in configuration(settings, jars, java).items():
        builder = builder.config(key, value)
    try:
        spark = builder.getOrCreate()
    except (PySparkException, RuntimeError, OSError) as error:
        raise ArchiveError(
            f"Spark didn't start with {java.command} (Java {java.version}): {_brief(error)}"
        ) from error
    spark.sparkContext.setLogLevel("OFF")
    if not settings.master.startswith("local["):
        ship(spark)
    return spark


def configuration(settings: ArchiveSettings, jars: Jars | None, java: Java) -> dict[str, str]:
    """Spark's configuration; ``archive.spark`` goes over it."""
    options = [f"-Dlog4j2.configurationFile={_quiet_file().as_uri()}"]
    archive = class_archive(java)
    if archive.exists():
        options.append(f"-XX:SharedArchiveFile={archive} -Xlog:disable -Xlog:all=off")
    given = dict(settings.spark)
    extra = given.pop("spark.driver.extraJavaOptions", "")
    own = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": " ".join([*options, extra]).strip(),
        "spark.sql.caseSensitive": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(BATCH_ROWS),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.numRecentProgressUpdates": "20",
        "spark.sql.streaming.stopTimeout": "30s",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if jars is not None:
        own["spark.jars"] = ",".join(jars.paths)
    if not settings.master.startswith("local"):
        del own["spark.driver.bindAddress"], own["spark.driver.host"]  # executors must reach the driver
    return {**own, **given}


def connector_jars(settings: ArchiveSettings) -> Jars | None:
    """The connector's jars for this pyspark, if they are there."""
    return find_jars(settings.jars, pyspark.__version__)


def check_pyspark() -> None:
    """:raises ArchiveError: pyspark is too old"""
    major, minor = (int(part) for part in pyspark.__version__.split(".")[:2])
    if (major, minor) < OLDEST:
        raise ArchiveError(
            f"pyspark {pyspark.__version__} is too old, {OLDEST[0]}.{OLDEST[1]} or newer is needed: "
            "pip install -U 'blumfeld[archive]'"
        )


def class_archive(java: Java) -> Path:
    """Where the JVM's shared classes of this Java and pyspark lie, if ``doctor`` made them."""
    return cache_folder() / "classes" / f"spark-{pyspark.__version__}-java-{java.version}-{java.origin}.jsa"


def ship(spark: Any) -> None:
    """Sends Blumfeld to executors on other machines; what it needs beside (the extra ``spark``) must be there."""
    folder = Path(tempfile.mkdtemp(prefix="blumfeld-"))
    archive = folder / "blumfeld.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for package in ("blumfeld", "blumfeld_sink_spark"):
            for source in _sources(package):
                file.write(source, str(Path(package) / source.relative_to(_home(package))))
    spark.sparkContext.addPyFile(str(archive))


def _sources(package: str) -> list[Path]:
    return sorted(path for path in _home(package).rglob("*") if path.is_file() and path.suffix != ".pyc")


def _home(package: str) -> Path:
    spec = find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def _quiet_file() -> Path:
    path = cache_folder() / "log4j2-off.properties"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_QUIET)
    return path


def _brief(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]
