"""What Spark says when a query fails, as a line for a person: our own refusal from inside the worker, or the cause."""

from __future__ import annotations

import re

from blumfeld.wire.errors import RETRIABLE, ErrorCode, message_of
from blumfeld_sink_spark.errors import ArchiveError, AwayError, LedgerConflictError

_OURS = re.compile(
    r"^(?:blumfeld_sink_spark\.[\w.]+\.)?"
    r"(?P<kind>ArchiveError|AwayError|LedgerConflictError|SettingsError|StoreError): (?P<text>.+)$",
    re.MULTILINE,
)
_KAFKA = {
    "Some data may have been lost": (
        "records that were to be read are gone (retention, or a topic made anew); to go on without them set "
        "archive.fail_on_data_loss = false"
    ),
    "java.lang.NoSuchMethodError": (
        "the Kafka connector's jars don't fit this pyspark; take reader = python, or the jars of the same version"
    ),
    "java.lang.OutOfMemoryError": "Spark's memory is full; give spark.driver.memory more",
}
_AWAY = {
    "UnknownTopicOrPartitionException": "a topic is missing on the broker",
    "Cannot fetch record for offset": "the broker didn't give records that were planned. Is it up?",
    "org.apache.kafka.common.errors.TimeoutException": "the broker doesn't answer. Is it up?",
    "org.apache.kafka.common.errors.DisconnectException": "the broker let go of the connection. Is it up?",
}
"""What can pass by itself, beside the errors of Kafka's table."""
_OTHERWISE = {
    ErrorCode.CORRUPT_MESSAGE: "CorruptRecord",
    ErrorCode.REQUEST_TIMED_OUT: "Timeout",
    ErrorCode.NETWORK_EXCEPTION: "Network",
    ErrorCode.KAFKA_STORAGE_ERROR: "KafkaStorage",
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR: "FetchSessionTopicId",
}
"""Exceptions of Kafka's Java client that have another name than their error."""
_KINDS: dict[str, type[ArchiveError]] = {
    "AwayError": AwayError,
    "LedgerConflictError": LedgerConflictError,
}
_CAUSE = re.compile(
    r"^(?:Caused by: )?(?P<name>[\w.$]+(?:Error|Exception))(?:: (?P<text>.*))?$", re.MULTILINE
)
_PLAIN = 300


def as_archive_error(text: str) -> ArchiveError:
    """The refusal in a failed query's message: ours with its own words, else the innermost cause in one line."""
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
    """The class by which Kafka's Java client tells this error."""
    name = _OTHERWISE.get(code) or "".join(part.capitalize() for part in code.name.split("_"))
    return f"org.apache.kafka.common.errors.{name}Exception"


def _last_cause(text: str) -> str:
    causes = [found for found in _CAUSE.finditer(text) if "SparkException" not in found["name"]]
    if causes:
        name = causes[-1]["name"].rpartition(".")[2]
        return f"{name}: {causes[-1]['text']}"[:_PLAIN] if causes[-1]["text"] else name
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return (lines[0] if lines else "Spark gave no reason")[:_PLAIN]
