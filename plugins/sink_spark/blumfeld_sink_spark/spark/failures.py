"""What Spark says when a query fails, as a line for a person: our own refusal from inside the worker, or the cause."""

from __future__ import annotations

import re

from blumfeld_sink_spark.errors import ArchiveError, AwayError, LedgerConflictError

_OURS = re.compile(
    r"^(?:blumfeld_sink_spark\.[\w.]+\.)?"
    r"(?P<kind>ArchiveError|AwayError|LedgerConflictError|SettingsError|StoreError): (?P<text>.+)$",
    re.MULTILINE,
)
_KAFKA = {
    "UnknownTopicOrPartitionException": "a topic is missing on the broker",
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
    "Cannot fetch record for offset": "the broker didn't give records that were planned. Is it up?",
    "org.apache.kafka.common.errors.TimeoutException": "the broker doesn't answer. Is it up?",
    "org.apache.kafka.common.errors.DisconnectException": "the broker let go of the connection. Is it up?",
}
"""What can pass by itself."""
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
    return ArchiveError(f"the query failed: {_last_cause(text)}")


def _last_cause(text: str) -> str:
    causes = [found for found in _CAUSE.finditer(text) if "SparkException" not in found["name"]]
    if causes:
        name = causes[-1]["name"].rpartition(".")[2]
        return f"{name}: {causes[-1]['text']}"[:_PLAIN] if causes[-1]["text"] else name
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return (lines[0] if lines else "Spark gave no reason")[:_PLAIN]
