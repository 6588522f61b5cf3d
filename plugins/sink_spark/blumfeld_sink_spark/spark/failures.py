"""Turns the texts of a failed query and of a failed start into one of our errors: our own from inside a worker, or
Spark's innermost cause.

Spark hands a worker's exception over as the text of a Java exception, so only texts and class names can be matched.
"""

from __future__ import annotations

import re
import textwrap

from blumfeld.wire.errors import RETRIABLE, ErrorCode, message_of
from blumfeld_sink_spark.errors import ArchiveError, AwayError, LedgerConflictError

_OURS = re.compile(
    r"^(?:blumfeld_sink_spark\.[\w.]+\.)?"
    r"(?P<kind>ArchiveError|AwayError|LedgerConflictError|SettingsError|StoreError): (?P<text>.+)$",
    re.MULTILINE,
)
_KAFKA = {
    "Some data may have been lost": (
        "records that were to be read are gone (retention, or a topic created again); to go on without them set "
        "archive.fail_on_data_loss = false"
    ),
    "java.lang.NoSuchMethodError": (
        "the Kafka connector's jars don't fit this pyspark; take reader = python, or the jars of the same version"
    ),
    "java.lang.OutOfMemoryError": "Spark's memory is full; give spark.driver.memory more",
}
_SLOW_WORKER = "Spark couldn't start a Python worker in time. Is the machine very busy, or short of memory?"
_AWAY = {
    "UnknownTopicOrPartitionException": "a topic is missing on the broker",
    "Cannot fetch record for offset": "the broker didn't give records that were planned. Is it up?",
    "org.apache.kafka.common.errors.TimeoutException": "the broker doesn't answer. Is it up?",
    "org.apache.kafka.common.errors.DisconnectException": "the broker let go of the connection. Is it up?",
    "Python worker failed to connect back": _SLOW_WORKER,
    "while waiting for the Python worker to connect back": _SLOW_WORKER,
    "Python daemon failed to launch worker": _SLOW_WORKER,
}
"""Failures that can pass by themselves, beside the retriable errors of Kafka's table."""
_OTHERWISE = {
    ErrorCode.CORRUPT_MESSAGE: "CorruptRecord",
    ErrorCode.REQUEST_TIMED_OUT: "Timeout",
    ErrorCode.NETWORK_EXCEPTION: "Network",
    ErrorCode.KAFKA_STORAGE_ERROR: "KafkaStorage",
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR: "FetchSessionTopicId",
}
"""Names of Kafka's Java exceptions where they differ from the error's own name."""
_KINDS: dict[str, type[ArchiveError]] = {
    "AwayError": AwayError,
    "LedgerConflictError": LedgerConflictError,
}
_CAUSE = re.compile(
    r"^(?:Caused by: |: |Exception in thread \"[^\"]*\" )?(?P<name>[\w.$]+(?:Error|Exception))(?:: (?P<text>.*))?$",
    re.MULTILINE,
)
_REASON_CHARS = 300
_LOGGED = re.compile(r"^ERROR (?P<logger>[\w$]+): (?P<text>.+)$", re.MULTILINE)
"""A line of Spark's log in the form that ``session`` sets."""
_COMPLAINT = re.compile(r"Error|Invalid|Unrecognized|Could not|[Cc]annot|No such|not found")
"""Signs of a line in which the JVM or a shell says why it doesn't start."""
_FOLLOWING = ("Error initializing SparkContext.", "Error occurred during initialization of")
"""Signs of lines that announce the cause of a failed start and don't have it."""


def as_archive_error(text: str) -> ArchiveError:
    """Returns the error in a failed query's message.

    Our own error keeps its class and text. Otherwise the text is the innermost cause in one line;
    :class:`AwayError` where the cause can pass by itself.
    """
    ours = list(_OURS.finditer(text))
    if ours:
        return _KINDS.get(ours[-1]["kind"], ArchiveError)(ours[-1]["text"].strip())
    for sign, meaning in _KAFKA.items():
        if sign in text:
            return ArchiveError(f"{meaning} ({_last_cause(text)})")
    for sign, meaning in _AWAY.items():
        if sign in text:
            return AwayError(f"{meaning} ({_last_cause(text)})")
    for code in sorted(RETRIABLE):
        if java_exception(code) in text:
            return AwayError(f"{message_of(code)} ({_last_cause(text)})")
    return ArchiveError(f"the query failed: {_last_cause(text)}")


def java_exception(code: ErrorCode) -> str:
    """Returns the full name of the exception that Kafka's Java client has for this error."""
    name = _OTHERWISE.get(code) or "".join(part.capitalize() for part in code.name.split("_"))
    return f"org.apache.kafka.common.errors.{name}Exception"


def why_no_start(error: str, output: str) -> str:
    """Returns the reason why Spark didn't start, in one line; empty where neither text has one.

    :param error: the exception's text
    :param output: output of the JVM, with Spark's log of errors
    """
    logged = [_shortened(match["text"]) for match in _LOGGED.finditer(output)]
    complaints = [_shortened(line) for line in output.splitlines() if _COMPLAINT.search(line)]
    # The log first: where a master doesn't answer, the exception is what some later call met.
    causes = [*logged, _named_cause(error), _named_cause(output), *complaints]
    return next((cause for cause in causes if cause and not any(sign in cause for sign in _FOLLOWING)), "")


def _last_cause(text: str) -> str:
    cause = _named_cause(text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return cause or _shortened(lines[0] if lines else "Spark gave no reason")


def _named_cause(text: str) -> str:
    """Returns the innermost exception in a text, ``SparkException`` only where there is no other; empty where there is
    none.
    """
    causes = list(_CAUSE.finditer(text))
    causes = [cause for cause in causes if "SparkException" not in cause["name"]] or causes
    if not causes:
        return ""
    name = causes[-1]["name"].rpartition(".")[2]
    return _shortened(f"{name}: {causes[-1]['text']}") if causes[-1]["text"] else name


def _shortened(text: str) -> str:
    return textwrap.shorten(text, _REASON_CHARS, placeholder=" …")
