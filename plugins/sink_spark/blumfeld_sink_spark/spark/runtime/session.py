"""A Spark session for the archive: on loopback, quiet, in UTC, with a Java and the connector's jars."""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import pyspark

from blumfeld_sink_spark.errors import ArchiveError
from blumfeld_sink_spark.settings import ArchiveSettings
from blumfeld_sink_spark.spark.runtime.jars import Jars, find_jars
from blumfeld_sink_spark.spark.runtime.java import Java, cache_folder, find_java
from blumfeld_sink_spark.spark.runtime.python import worker_python
from blumfeld_sink_spark.spark.topics.fetch import BATCH_ROWS

END_S = 20.0
"""How long a JVM may take to end."""

DEAD_S = 2.0
"""How long after a lost connection the JVM may take to be seen as ended."""

DUMP_S = 120.0
"""How long it may take to write its classes."""

SPOKEN = b"blumfeld archive: "
"""How our remarks in workers begin."""

OLDEST = (4, 2)
"""The first pyspark whose Python sources can be told how much to read."""

WORKER_ENVIRONMENT = {
    "MIMALLOC_PURGE_DELAY": "-1",
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 31),
}
"""Arrow's allocator and libc's keep what a worker freed: columns of some MB come and go with each batch, and to hand
their pages to the system and take them back, zeroed, is a sixth to a fifth of a task's time. A worker's peak is
0.71 GB where it was 0.68, kept until Spark ends it, idle for a minute.
"""

_QUIET = """rootLogger.level = off
rootLogger.appenderRef.none.ref = none
appender.none.type = Null
appender.none.name = none
"""


class Session:
    """A Spark session and its JVM, which ends with it. What the JVM and its workers print goes to a file, of which
    ``said`` gives the lines that are ours.
    """

    def __init__(self, settings: ArchiveSettings, jars: Jars | None, java: Java | None = None) -> None:
        """Starts it. One process may hold one at a time.

        :raises ArchiveError: no Java that fits, pyspark is too old, or the JVM doesn't start
        """
        check_pyspark()
        java = java or find_java()
        os.environ["JAVA_HOME"] = java.home
        self._home: tempfile.TemporaryDirectory[str] | None = None
        set_python(worker_python(local=is_local(settings.master)))
        self._output = tempfile.TemporaryFile(prefix="blumfeld-spark-")  # noqa: SIM115 — closed by stop
        self._rest = b""
        try:
            self.spark = self._start(settings, configuration(settings, jars, java))
        except BaseException as error:
            told = self._tail()
            self._output.close()
            if not isinstance(error, Exception):
                raise
            raise ArchiveError(
                f"Spark didn't start with {java.command} (Java {java.version}): {told or _brief(error)}"
            ) from error

    def _start(self, settings: ArchiveSettings, values: dict[str, str]) -> Any:
        from pyspark import SparkConf, SparkContext
        from pyspark.java_gateway import launch_gateway
        from pyspark.sql import SparkSession

        conf = SparkConf(loadDefaults=False)
        conf.setMaster(settings.master).setAppName(f"blumfeld archive {settings.name}").setAll(
            list(values.items())
        )
        # A session of its own: a signal to our process group is ours to take, between two batches.
        popen = {"stdout": self._output, "stderr": self._output, "start_new_session": True}
        logging.getLogger().addFilter(_not_py4j)
        with self._spark_home(settings.master):
            gateway = launch_gateway(conf, popen)
        self._process = gateway.proc
        context = SparkContext(conf=conf, gateway=gateway)
        with suppress(AttributeError):  # Spark's own; it prints a traceback when the JVM is killed
            context._accumulatorServer.handle_error = lambda *given: None
        context.setLogLevel("OFF")
        if not is_local(settings.master):
            ship(context)
        return SparkSession(context)

    def ended(self) -> str:
        """How the JVM ended that should be running, in words; empty while it runs."""
        try:
            status = self._process.wait(DEAD_S)
        except subprocess.TimeoutExpired:
            return ""
        how = f"by signal {signal.Signals(-status).name}" if status < 0 else f"with status {status}"
        told = re.findall(r".*(?:Error|Exception|memory|fatal).*", self._tail())
        return f"Spark's JVM (process {self._process.pid}) ended {how}" + (f" ({told[0]})" if told else "")

    @contextmanager
    def _spark_home(self, master: str) -> Iterator[None]:
        """For ``local-cluster[…]``, a home whose ``work`` folder is temporary: the workers that Spark starts there put
        logs and jars under ``$SPARK_HOME/work``, which is pyspark's own folder otherwise.
        """
        if not master.startswith("local-cluster"):
            yield
            return
        self._home = tempfile.TemporaryDirectory(prefix="blumfeld-spark-home-", ignore_cleanup_errors=True)
        link_home(Path(self._home.name), Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent))
        before = os.environ.get("SPARK_HOME")
        os.environ["SPARK_HOME"] = self._home.name
        try:
            yield
        finally:
            del os.environ["SPARK_HOME"]
            if before is not None:
                os.environ["SPARK_HOME"] = before

    def said(self) -> list[str]:
        """Remarks of ours that workers printed since the last call."""
        text = self._rest + os.pread(self._output.fileno(), 1 << 20, self._read)
        self._read += len(text) - len(self._rest)
        *lines, self._rest = text.split(b"\n")
        return [
            line.removeprefix(SPOKEN).decode(errors="replace") for line in lines if line.startswith(SPOKEN)
        ]

    def stop(self, patience_s: float = END_S) -> None:
        """Ends Spark and its JVM. Never raises: a JVM that died has nothing left to stop."""
        with suppress(Exception):
            self.spark.stop()
        _end_jvm(self._process, patience_s)
        logging.getLogger().removeFilter(_not_py4j)
        self._output.close()
        if self._home is not None:
            self._home.cleanup()

    _read = 0
    _process: Any = None

    def _tail(self) -> str:
        """The last line of what was printed that isn't a warning."""
        text = os.pread(self._output.fileno(), 1 << 16, 0).decode(errors="replace")
        lines = [line.strip() for line in text.splitlines() if line.strip() and "WARN" not in line]
        return lines[-1][:300] if lines else ""


def open_session(settings: ArchiveSettings, jars: Jars | None) -> Session:
    """A session for an archive of these settings, to be stopped. :raises ArchiveError: as :class:`Session`"""
    return Session(settings, jars)


def _not_py4j(record: logging.LogRecord) -> bool:
    """Keeps py4j's tracebacks out of the root logger: its exceptions reach us, and are told in one line."""
    return "py4j" not in Path(record.pathname).parts


def link_home(home: Path, spark: Path) -> None:
    """Makes ``home`` a Spark home: links to all that ``spark`` has, and a ``work`` folder of its own."""
    for entry in spark.iterdir():
        if entry.name != "work":
            (home / entry.name).symlink_to(entry)
    (home / "work").mkdir()


def set_python(command: str) -> None:
    """Lets Spark run this Python, unless a person said which; an earlier choice of ours doesn't stay."""
    ours = (None, sys.executable, worker_python(local=True))
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        if os.environ.get(name) in ours:
            os.environ[name] = command


def _end_jvm(process: Any, patience_s: float) -> None:
    """The JVM lives as long as its standard input; the next session of this process gets one of its own."""
    from pyspark import SparkContext

    with suppress(Exception):
        if SparkContext._gateway is not None:
            SparkContext._gateway.shutdown()
    SparkContext._gateway = None
    SparkContext._jvm = None
    if process is not None:
        with suppress(OSError):
            process.stdin.close()
        try:
            process.wait(patience_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


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
        **{f"spark.executorEnv.{name}": value for name, value in WORKER_ENVIRONMENT.items()},
    }
    if jars is not None:
        own["spark.jars"] = ",".join(jars.paths)
    if not settings.master.startswith("local"):  # executors on this machine find it by loopback
        del own["spark.driver.bindAddress"], own["spark.driver.host"]
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
            "pip install -U pyspark"
        )


def class_archive(java: Java) -> Path:
    """Where the JVM's shared classes of this Java and pyspark lie, if ``doctor`` made them."""
    return cache_folder() / "classes" / f"spark-{pyspark.__version__}-java-{java.version}-{java.origin}.jsa"


def is_local(master: str) -> bool:
    """Whether tasks run in the driver's own JVM."""
    return master == "local" or master.startswith("local[")


def make_class_archive(settings: ArchiveSettings) -> float:
    """Lets a short session write the classes it loaded, which later ones map instead of loading. Says how long.

    :raises ArchiveError: Spark doesn't start
    """
    java = find_java()
    path = class_archive(java)
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(f".{os.getpid()}")
    begun = time.monotonic()
    spark = {
        **settings.spark,
        "spark.driver.extraJavaOptions": f"-XX:ArchiveClassesAtExit={fresh} -Xlog:disable",
    }
    session = Session(msgspec.structs.replace(settings, spark=spark), None, java)
    try:
        rows = session.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
        with tempfile.TemporaryDirectory(prefix="blumfeld-classes-") as folder:
            query = rows.writeStream.format("noop").option("checkpointLocation", folder)
            query.trigger(once=True).start().awaitTermination(60)
    finally:
        session.stop(DUMP_S)
    if fresh.exists():
        fresh.replace(path)
    return time.monotonic() - begun


def ship(context: Any) -> None:
    """Sends Blumfeld to executors on other machines; what it needs beside (the extra ``spark``) must be there."""
    folder = Path(tempfile.mkdtemp(prefix="blumfeld-"))
    archive = folder / "blumfeld.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for package in ("blumfeld", "blumfeld_sink_spark"):
            for source in _sources(package):
                file.write(source, str(Path(package) / source.relative_to(_home(package))))
    context.addPyFile(str(archive))


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
