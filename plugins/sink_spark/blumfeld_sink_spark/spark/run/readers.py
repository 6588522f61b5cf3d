"""The three readers and the choice of ``auto``.

``jvm`` is Spark's Kafka connector, ``python`` our source with decoding in the sink's tasks, and ``direct`` our source
with everything in one task.
"""

from __future__ import annotations

from typing import Any, Literal

import attrs
import msgspec
import pyspark

from blumfeld_sink_spark.errors import ArchiveError, SettingsError
from blumfeld_sink_spark.logins import for_java
from blumfeld_sink_spark.settings import ArchiveSettings
from blumfeld_sink_spark.spark.checkpoint import Identity
from blumfeld_sink_spark.spark.runtime.jars import NEEDED, Jars, version
from blumfeld_sink_spark.spark.runtime.session import connector_jars
from blumfeld_sink_spark.spark.tasks.source import SOURCE, TopicsSource
from blumfeld_sink_spark.spark.topics.client import patience_s
from blumfeld_sink_spark.spark.topics.fetch import consumed_because

Reader = Literal["jvm", "python", "direct"]

_JVM_FETCHES = {
    "kafka.max.poll.records": "20000",
    "kafka.max.partition.fetch.bytes": "8388608",
    "kafka.receive.buffer.bytes": "1048576",
}

FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_FORKLESS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
"""A checkpoint manager that writes a file and renames it, as Spark's default does on a local disk. The default starts
twenty processes (``readlink``, ``chmod``) a batch for that; this one starts none.
"""


@attrs.frozen
class Choice:
    """A reader that can work here."""

    reader: Reader
    why: str
    """Reason of the choice, for people."""
    jars: Jars | None = None
    """The connector's jars; only for the reader ``jvm``."""


def choose(settings: ArchiveSettings, mode: str) -> Choice:
    """Returns the reader that the settings name, or for ``auto`` the best one that works here.

    ``why`` also says so where our readers must go through librdkafka, which is slower.

    :raises SettingsError: the named reader can't do this mode
    :raises ArchiveError: the reader is ``jvm`` and the connector's jars aren't there
    """
    choice = _choose(settings, mode)
    because = consumed_because(settings)
    if choice.reader == "jvm" or not because:
        return choice
    return attrs.evolve(choice, why=f"{choice.why}; through librdkafka, as {because}")


def _choose(settings: ArchiveSettings, mode: str) -> Choice:
    if settings.reader == "python" or settings.reader == "direct":
        return Choice(reader=settings.reader, why="asked for")
    if settings.reader == "jvm":
        if mode == "backfill":
            raise SettingsError(
                "archive.reader: jvm can't end a stream at an offset; allowed: python, direct, auto"
            )
        return _asked_for_jvm(settings)
    if mode == "backfill":
        return Choice(reader="direct", why="ranges with an end, where nothing has to cross the JVM")
    jars = connector_jars(settings)
    if jars is None:
        return Choice(reader="direct", why="the Kafka connector's jars aren't here")
    if version(jars.connector)[:2] != version(pyspark.__version__)[:2] and not settings.jars:
        return Choice(
            reader="direct",
            why=f"the Kafka connector in {jars.origin} is {jars.connector}, pyspark is {pyspark.__version__}",
        )
    return Choice(reader="jvm", why=f"the Kafka connector {jars.connector} is in {jars.origin}", jars=jars)


def _asked_for_jvm(settings: ArchiveSettings) -> Choice:
    jars = connector_jars(settings)
    if jars is None:
        raise ArchiveError(
            f"the reader jvm needs {', '.join(f'{name}-VERSION.jar' for name in NEEDED)} fitting pyspark "
            f"{pyspark.__version__}, in archive.jars, $BLUMFELD_SPARK_JARS, ~/.cache/blumfeld/jars, ~/.m2 or ~/.ivy2; "
            "or take reader = direct"
        )
    return Choice(
        reader="jvm", why=f"asked for; the connector {jars.connector} is in {jars.origin}", jars=jars
    )


def stream(spark: Any, settings: ArchiveSettings, reader: Reader, identity: Identity) -> Any:
    """Returns the topics' rows as a streaming DataFrame. A new checkpoint begins at the identity's offsets."""
    if FILE_MANAGER not in settings.spark and _has_class(spark, _FORKLESS):
        spark.conf.set(FILE_MANAGER, _FORKLESS)
    starting = msgspec.json.encode(identity.starting).decode()
    if reader == "jvm":
        return spark.readStream.format("kafka").options(**_jvm_options(settings, starting)).load()
    ending = msgspec.json.encode(identity.ending).decode() if identity.ending is not None else ""
    spark.dataSource.register(TopicsSource)
    return (
        spark.readStream.format(SOURCE)
        .option("settings", msgspec.json.encode(settings).decode())
        .option("starting", starting)
        .option("ending", ending)
        .option("direct", "true" if reader == "direct" else "false")
        .load()
    )


def _has_class(spark: Any, name: str) -> bool:
    """Returns whether this Spark has the class: it is internal, and moved between releases."""
    from py4j.protocol import Py4JError

    try:
        spark._jvm.java.lang.Class.forName(name)
    except Py4JError:
        return False
    return True


def _jvm_options(settings: ArchiveSettings, starting: str) -> dict[str, str]:
    patience_ms = str(int(patience_s(settings) * 1000))
    request_ms = str(min(30_000, int(patience_ms)))  # Kafka's admin client refuses one above the call's
    options = {
        **_JVM_FETCHES,
        "kafka.bootstrap.servers": settings.bootstrap,
        "kafka.default.api.timeout.ms": patience_ms,
        "kafka.request.timeout.ms": request_ms,
        "kafka.isolation.level": settings.isolation,
        "kafkaConsumer.pollTimeoutMs": patience_ms,
        "fetchOffset.numRetries": "1",
        "groupIdPrefix": f"blumfeld-archive-{settings.name}",
        "failOnDataLoss": str(settings.fail_on_data_loss).lower(),
        "includeHeaders": str(settings.with_headers).lower(),
        "startingOffsets": starting,
        **{f"kafka.{key}": value for key, value in for_java(settings.kafka).items()},
    }
    if settings.topics:
        options["subscribe"] = ",".join(settings.topics)
    else:
        options["subscribePattern"] = settings.topic_pattern
    if settings.max_offsets_per_trigger:
        options["maxOffsetsPerTrigger"] = str(settings.max_offsets_per_trigger)
    return options
