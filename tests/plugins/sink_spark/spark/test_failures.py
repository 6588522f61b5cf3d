"""The archive's error for a failed query."""

from __future__ import annotations

from typing import Any

import pytest

from blumfeld.wire.errors import ErrorCode
from blumfeld_sink_spark.errors import ArchiveError, AwayError, LedgerConflictError
from blumfeld_sink_spark.spark.failures import as_archive_error, java_exception, why_no_start
from tests.everyday import for_each
from tests.kafka_facts import error_codes

WORKER = """[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted due to stage failure:
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "fetch.py", line 9, in read
    raise ArchiveError(text)
{line}

	at org.apache.spark.api.python.BasePythonRunner.handlePythonException(PythonRunner.scala:600)
Caused by: something.Else: of no interest
"""


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        ("errors.ArchiveError", ArchiveError, "t-0 begins at offset 5 now: 0 to 5 are lost"),
        ("errors.LedgerConflictError", LedgerConflictError, "another writer"),
        ("stores.contract.StoreError", ArchiveError, "/a: writing x: no space left"),
        ("errors.AwayError", AwayError, "127.0.0.1:9 doesn't answer"),
    ],
)
def test_our_own_refusal_is_told_in_its_own_words(error: str, kind: type[ArchiveError], text: str) -> None:
    archive_error = as_archive_error(WORKER.format(line=f"blumfeld_sink_spark.{error}: {text}"))
    assert (type(archive_error), str(archive_error)) == (kind, text)


@pytest.mark.parametrize(
    ("sign", "explanation"),
    [
        ("java.lang.NoSuchMethodError: x", "don't fit this pyspark"),
        (
            "java.util.concurrent.ExecutionException: UnknownTopicOrPartitionException: z",
            "a topic is missing",
        ),
    ],
)
def test_the_connectors_failures_are_explained(sign: str, explanation: str) -> None:
    assert explanation in str(as_archive_error(f"[STREAM_FAILED] q\n{sign}\n\tat a.b.C\n"))


@pytest.mark.parametrize(
    "line",
    [
        "org.apache.kafka.common.errors.TimeoutException: y",
        "java.util.concurrent.TimeoutException: Cannot fetch record for offset 5 in 3000 milliseconds",
    ],
)
def test_what_can_pass_is_told_from_what_cant(line: str) -> None:
    assert isinstance(as_archive_error(WORKER.format(line=line)), AwayError)


@for_each(error_codes())
def test_kafkas_java_client_tells_the_same_errors(fact: dict[str, Any]) -> None:
    """The reader jvm: the query's message names its exceptions. Those that Kafka's table calls retriable may pass."""
    if fact["exception"] is None:
        return
    name = f"org.apache.kafka.common.errors.{fact['exception']}"
    assert isinstance(as_archive_error(WORKER.format(line=f"{name}: x")), AwayError) == fact["retriable"]
    if fact["retriable"]:
        assert java_exception(ErrorCode(fact["code"])) == name


def test_a_python_worker_that_doesnt_start_in_time_can_pass_and_is_named() -> None:
    """Spark told it so where a worker took over 10 s on a busy machine."""
    text = (
        "Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times, most recent failure: Lost task 0.0 in "
        "stage 0.0 (TID 0) (10.0.0.1 executor driver): org.apache.spark.SparkException: Python worker failed to "
        "connect back.\n\tat org.apache.spark.api.python.PythonWorkerFactory.createSimpleWorker(P.scala:299)\nCaused "
        "by: java.net.SocketTimeoutException: Timed out while waiting for the Python worker to connect back\n\t... 23 "
        "more\n\nDriver stacktrace:\n=== Streaming Query ===\n"
    )
    archive_error = as_archive_error(text)
    assert isinstance(archive_error, AwayError)
    assert str(archive_error) == (
        "Spark couldn't start a Python worker in time. Is the machine very busy, or short of memory? "
        "(SocketTimeoutException: Timed out while waiting for the Python worker to connect back)"
    )


SHELL = """WARNING: Using incubator modules: jdk.incubator.vector
Setting default log level to "WARN".
To adjust logging level use sc.setLogLevel(newLevel). For SparkR, use setLogLevel(newLevel).
"""
CALL = "An error occurred while calling {name}.\n: {cause}\n\tat org.apache.spark.X.y(X.scala:41)\n"
GATEWAY = "[JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port number."


@pytest.mark.parametrize(
    ("error", "output", "why"),
    [
        pytest.param(
            CALL.format(
                name="None.org.JavaSparkContext", cause="java.net.BindException: bind(..) failed: Cannot"
            ),
            f"{SHELL}ERROR SparkContext: Error initializing SparkContext.\n",
            "BindException: bind(..) failed: Cannot",
            id="an address that isn't this machine's",
        ),
        pytest.param(
            CALL.format(
                name="o45.addFile", cause="java.lang.NullPointerException: Cannot invoke SparkEnv$.get()"
            ),
            f"{SHELL}ERROR StandaloneSchedulerBackend: Application has been killed. Reason: All masters are "
            "unresponsive! Giving up.\n",
            "Application has been killed. Reason: All masters are unresponsive! Giving up.",
            id="a dead master",
        ),
        pytest.param(
            GATEWAY,
            'WARNING: Using\nException in thread "main" org.apache.spark.SparkException: Executor memory must be a '
            "positive number\n\tat org.apache.spark.deploy.SparkSubmit.main(SparkSubmit.scala)\n",
            "SparkException: Executor memory must be a positive number",
            id="a wrong setting",
        ),
        pytest.param(
            GATEWAY,
            "Error occurred during initialization of VM\nCould not reserve enough space for object heap\n",
            "Could not reserve enough space for object heap",
            id="no memory",
        ),
        pytest.param("[Errno 111] Connection refused", SHELL, "", id="a JVM that was killed"),
    ],
)
def test_a_failed_start_is_told_by_its_cause_and_not_by_what_follows(
    error: str, output: str, why: str
) -> None:
    assert why_no_start(error, output) == why


def test_another_failure_is_its_last_cause_in_one_line() -> None:
    text = "[STREAM_FAILED] q\norg.apache.spark.SparkException: Job\nCaused by: java.io.IOException: disk\n\tat x"
    assert str(as_archive_error(text)) == "the query failed: IOException: disk"
    assert str(as_archive_error("")) == "the query failed: Spark gave no reason"


def test_a_long_reason_is_cut_behind_a_word_and_says_so() -> None:
    """Spark's advice on an address that can't be bound ended with "for SparkDriver) to"."""
    words = " ".join(["advice"] * 60)
    why = why_no_start(CALL.format(name="o1", cause=f"java.net.BindException: {words}"), "")
    assert why.startswith("BindException: advice")
    assert why.endswith("advice …")
    assert len(why) <= 300
