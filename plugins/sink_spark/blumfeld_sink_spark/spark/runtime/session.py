"""The Spark session of an archive: on loopback, in UTC, with a Java and the connector's jars, and without logs once it
has started.
"""

from __future__ import annotations

import ctypes
import logging
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import pyspark

from blumfeld_sink_spark.errors import ArchiveError
from blumfeld_sink_spark.settings import ArchiveSettings
from blumfeld_sink_spark.spark.failures import why_no_start
from blumfeld_sink_spark.spark.runtime.jars import Jars, find_jars
from blumfeld_sink_spark.spark.runtime.java import Java, cache_folder, find_java
from blumfeld_sink_spark.spark.runtime.python import worker_python
from blumfeld_sink_spark.spark.topics.fetch import BATCH_ROWS

END_S = 20.0
"""Time that a JVM has to end before it is killed."""

DEAD_S = 2.0
"""Time after a lost connection in which the JVM's end shows, if it has ended."""

DUMP_S = 120.0
"""Time that a JVM has to end when it writes its class archive."""

PR_SET_PDEATHSIG = 1
"""Number of the option of ``prctl`` that names the signal at the parent's end."""

_set_process_option = getattr(ctypes.CDLL(None), "prctl", None)
"""Linux has it. Elsewhere a killed driver's JVM ends when it reads its standard input."""

SPOKEN = b"blumfeld archive: "
"""Prefix of the lines that our code in workers prints for people."""

OLDEST = (4, 2)
"""Oldest pyspark that works: since this release, Python sources take a read limit."""

WORKER_ENVIRONMENT = {
    "MIMALLOC_PURGE_DELAY": "-1",
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 31),
}
"""Settings with which Arrow's and libc's allocators keep freed memory.

Columns of some MB come and go with each batch. Returning their pages to the system, and taking them back zeroed, is a
sixth to a fifth of a task's time. The price: a worker's peak is 0.71 GB instead of 0.68, until Spark ends it after an
idle minute.
"""

_LOGGING = """rootLogger.level = error
rootLogger.appenderRef.output.ref = output
appender.output.type = Console
appender.output.name = output
appender.output.target = SYSTEM_ERR
appender.output.layout.type = PatternLayout
appender.output.layout.pattern = ERROR %c{1}: %m%n
appender.output.layout.alwaysWriteExceptions = false
"""


class Session:
    """A Spark session and its JVM, which ends with it.

    The output of the JVM and its workers goes to a temporary file; ``said`` returns our own lines of it.

    The JVM also ends if this process is killed. Linux ends it with the thread that made the session, so that thread
    must outlive the session.
    """

    def __init__(self, settings: ArchiveSettings, jars: Jars | None, java: Java | None = None) -> None:
        """Starts Spark. A process may have one session at a time.

        :raises ArchiveError: no Java that fits, pyspark is too old, or the JVM doesn't start
        """
        check_pyspark()
        java = java or find_java()
        os.environ["JAVA_HOME"] = java.home
        self._home: tempfile.TemporaryDirectory[str] | None = None
        set_python(worker_python(local=is_local(settings.master)))
        self._output = tempfile.TemporaryFile(prefix="blumfeld-spark-")  # noqa: SIM115 — closed by _close
        self._rest = b""
        try:
            self.spark = self._start(settings, configuration(settings, jars, java))
        except BaseException as error:
            why = self._why_not(error) if isinstance(error, Exception) else ""
            self._close(END_S)
            if not isinstance(error, Exception):
                raise
            raise ArchiveError(
                f"Spark didn't start with {java.command} (Java {java.version}): {why}"
            ) from error

    def _start(self, settings: ArchiveSettings, values: dict[str, str]) -> Any:
        from pyspark import SparkConf, SparkContext
        from pyspark.java_gateway import launch_gateway
        from pyspark.sql import SparkSession

        conf = SparkConf(loadDefaults=False)
        conf.setMaster(settings.master).setAppName(f"blumfeld archive {settings.name}").setAll(
            list(values.items())
        )
        # A process session of its own: otherwise Ctrl-C would end the JVM in the middle of a batch, while we stop
        # between two.
        popen = {"stdout": self._output, "stderr": self._output, "start_new_session": True}
        logging.getLogger().addFilter(_not_py4j)
        with self._spark_home(settings.master), self._kept_process():
            gateway = launch_gateway(conf, popen)
        context = SparkContext(conf=conf, gateway=gateway)
        with suppress(AttributeError):  # an internal of Spark: it prints a traceback when the JVM is killed
            context._accumulatorServer.handle_error = lambda *given: None
        context.setLogLevel("OFF")
        if not is_local(settings.master):
            ship(context)
        return SparkSession(context)

    @contextmanager
    def _kept_process(self) -> Iterator[None]:
        """Keeps the process that ``launch_gateway`` starts, also where it ends before the gateway is there."""
        from pyspark import java_gateway

        def keep(command: list[str], **options: Any) -> Any:
            ready = options.pop("preexec_fn", None)
            self._process = before(command, preexec_fn=partial(_in_jvm, ready), **options)
            return self._process

        before = java_gateway.Popen
        java_gateway.Popen = keep
        try:
            yield
        finally:
            java_gateway.Popen = before

    def _why_not(self, error: Exception) -> str:
        """Returns why Spark didn't start, in one line."""
        printed = os.pread(self._output.fileno(), 1 << 16, 0).decode(errors="replace")
        return why_no_start(str(error), printed) or self.ended() or self._tail() or _brief(error)

    def ended(self) -> str:
        """Returns a sentence on how the JVM ended; empty while it runs. Waits for ``DEAD_S`` at most."""
        if self._process is None:
            return ""
        try:
            status = self._process.wait(DEAD_S)
        except subprocess.TimeoutExpired:
            return ""
        how = f"by signal {signal.Signals(-status).name}" if status < 0 else f"with status {status}"
        errors = re.findall(r".*(?:Error|Exception|memory|fatal).*", self._tail())
        return f"Spark's JVM (process {self._process.pid}) ended {how}" + (
            f" ({errors[0]})" if errors else ""
        )

    @contextmanager
    def _spark_home(self, master: str) -> Iterator[None]:
        """Gives ``local-cluster[…]`` a temporary Spark home.

        Its workers put logs and jars under ``$SPARK_HOME/work``, which would otherwise lie in pyspark's own folder.
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
        """Returns the lines for people that workers printed since the last call, without their prefix."""
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
        self._close(patience_s)

    def _close(self, patience_s: float) -> None:
        _end_jvm(self._process, patience_s)
        logging.getLogger().removeFilter(_not_py4j)
        self._output.close()
        if self._home is not None:
            self._home.cleanup()

    _read = 0
    _process: Any = None

    def _tail(self) -> str:
        """Returns the last printed line that isn't a warning."""
        text = os.pread(self._output.fileno(), 1 << 16, 0).decode(errors="replace")
        lines = [line.strip() for line in text.splitlines() if line.strip() and "WARN" not in line]
        return lines[-1][:300] if lines else ""


def open_session(settings: ArchiveSettings, jars: Jars | None) -> Session:
    """Returns a session for these settings; the caller stops it.

    :raises ArchiveError: as :class:`Session`
    """
    return Session(settings, jars)


def _not_py4j(record: logging.LogRecord) -> bool:
    """Keeps py4j's tracebacks out of the root logger: its exceptions reach us, and we report them in one line."""
    return "py4j" not in Path(record.pathname).parts


def _in_jvm(ready: Callable[[], None] | None) -> None:
    """Runs in the new process before it becomes the JVM: the system is to end it when this process ends.

    A JVM ends by itself when its standard input is closed, but it first reads it when it has started, which takes 20 s
    on a busy machine.
    """
    if ready is not None:
        ready()
    if _set_process_option is not None:
        _set_process_option(PR_SET_PDEATHSIG, signal.SIGTERM)


def link_home(home: Path, spark: Path) -> None:
    """Makes ``home`` a Spark home: links to every entry of ``spark``, and a ``work`` folder of its own."""
    for entry in spark.iterdir():
        if entry.name != "work":
            (home / entry.name).symlink_to(entry)
    (home / "work").mkdir()


def set_python(command: str) -> None:
    """Sets the Python that Spark runs, unless the environment names one. An earlier choice of ours is replaced."""
    ours = (None, sys.executable, worker_python(local=True))
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        if os.environ.get(name) in ours:
            os.environ[name] = command


def _end_jvm(process: Any, patience_s: float) -> None:
    """Ends the JVM by closing its standard input; kills it after ``patience_s``. The next session starts a new one."""
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
    """Returns Spark's configuration: our defaults, overridden by ``archive.spark``."""
    options = [f"-Dlog4j2.configurationFile={_log_file().as_uri()}"]
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
    if not settings.master.startswith("local"):  # a cluster's executors can't reach the driver by loopback
        del own["spark.driver.bindAddress"], own["spark.driver.host"]
    return {**own, **given}


def connector_jars(settings: ArchiveSettings) -> Jars | None:
    """Returns the connector's jars for this pyspark; ``None`` where there are none.

    :raises SettingsError: ``archive.jars`` is set and has none that fit
    """
    return find_jars(settings.jars, pyspark.__version__)


def check_pyspark() -> None:
    """Checks pyspark's version.

    :raises ArchiveError: it is too old
    """
    major, minor = (int(part) for part in pyspark.__version__.split(".")[:2])
    if (major, minor) < OLDEST:
        raise ArchiveError(
            f"pyspark {pyspark.__version__} is too old, {OLDEST[0]}.{OLDEST[1]} or newer is needed: "
            "pip install -U pyspark"
        )


def class_archive(java: Java) -> Path:
    """Returns the path of the class archive for this Java and pyspark. ``doctor --share-classes`` makes the file."""
    return cache_folder() / "classes" / f"spark-{pyspark.__version__}-java-{java.version}-{java.origin}.jsa"


def is_local(master: str) -> bool:
    """Returns whether tasks run on this machine, in the driver's own JVM."""
    return master == "local" or master.startswith("local[")


def make_class_archive(settings: ArchiveSettings) -> float:
    """Runs a short session that writes its loaded classes to a file. Later sessions map the file, which is faster.

    :returns: the seconds that it took
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
    """Sends Blumfeld's code to executors on other machines. Its dependencies must be installed there."""
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


def _log_file() -> Path:
    path = cache_folder() / "log4j2-errors.properties"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_LOGGING)
    return path


def _brief(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]
