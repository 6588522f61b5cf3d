"""Questions to the broker, through librdkafka: the topics' partitions, their ends, and the offsets of a time."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import attrs

from blumfeld.wire.errors import is_retriable
from blumfeld_sink_spark.errors import ArchiveError, AwayError, SettingsError
from blumfeld_sink_spark.logins import for_librdkafka, not_let_in
from blumfeld_sink_spark.settings import ArchiveSettings
from blumfeld_sink_spark.spark.topics import offset_plans
from blumfeld_sink_spark.spark.topics.offset_plans import Offsets, Place, Position

START_PATIENCE_S = 15.0
"""Time that a broker has for its first answer when an archive starts."""

RETRY_S = 0.2
"""Retry backoff."""

JAVA_ONLY = frozenset({"default.api.timeout.ms", "max.poll.records", "receive.buffer.bytes", "group.id"})
"""Client settings that aren't passed to librdkafka: it doesn't have them, or the archive sets them itself."""


def patience_s(settings: ArchiveSettings) -> float:
    """Returns the time that a broker has for an answer while an archive runs: Kafka's ``default.api.timeout.ms``."""
    return int(settings.kafka.get("default.api.timeout.ms", "60000")) / 1000


def client_config(settings: ArchiveSettings) -> dict[str, Any]:
    """Returns librdkafka's configuration. Java's keys of TLS and SASL become its own.

    :raises SettingsError: a key of TLS or SASL can't be used, or has no effect
    """
    kafka = {key: value for key, value in settings.kafka.items() if key not in JAVA_ONLY}
    return {"bootstrap.servers": settings.bootstrap, "log_level": 0, **for_librdkafka(kafka)}


@attrs.frozen
class TopicState:
    """Both ends of all partitions."""

    earliest: Offsets
    latest: Offsets
    """The last stable offset with ``read_committed``, else the high watermark."""


class Topics:
    """The topics of an archive, asked through one client that stays open. No answer comes from a cache.

    Each call waits ``patience_s`` at most.

    :raises AwayError: (every method) the broker doesn't answer
    :raises ArchiveError: (every method) the broker refuses, or a topic is missing
    """

    def __init__(self, settings: ArchiveSettings, patience_s: float = START_PATIENCE_S) -> None:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        self._settings = settings
        self._patience_s = patience_s
        try:
            # librdkafka's default is 10 s: after an outage an archive would go on 10 s later than the broker.
            self._admin = AdminClient({"reconnect.backoff.max.ms": 1000, **client_config(settings)})
        except KafkaException as error:
            raise SettingsError(f"archive.kafka: {error.args[0].str()}") from error

    def places(self) -> list[Place]:
        """Returns all partitions of the topics, sorted. Named topics must exist; a pattern may match none."""
        listed = self._patiently(self._listed)
        names = self._settings.topics or _matching(self._settings.topic_pattern, listed.topics)
        missing = [name for name in names if name not in listed.topics or listed.topics[name].error]
        if missing:
            raise ArchiveError(
                f"{self._settings.bootstrap} has no topic {', '.join(missing)}; "
                f"create it, or correct archive.topics"
            )
        return sorted((name, partition) for name in names for partition in listed.topics[name].partitions)

    def earliest(self, places: Sequence[Place]) -> Offsets:
        """Returns the first offset that each partition still has."""
        return self._offsets(dict.fromkeys(places, offset_plans.EARLIEST))

    def latest(self, places: Sequence[Place]) -> Offsets:
        """Returns the end of each partition: by isolation level the last stable offset or the high watermark."""
        return self._offsets(dict.fromkeys(places, offset_plans.LATEST))

    def at_time(self, places: Sequence[Place], timestamp_ms: int) -> Offsets:
        """Returns the first offset with a record of this time or later; a partition's end where there is none."""
        offsets = self._offsets(dict.fromkeys(places, timestamp_ms))
        late = [place for place, offset in offsets.items() if offset < 0]
        return {**offsets, **(self.latest(late) if late else {})}

    def state(self) -> TopicState:
        """Returns both ends of all partitions."""
        places = self.places()
        return TopicState(earliest=self.earliest(places), latest=self.latest(places))

    def resolve(self, position: Position) -> Offsets:
        """Returns the offset of every partition at this position.

        :raises SettingsError: the position's offsets don't name every partition exactly once
        """
        places = self.places()
        if position.kind == "timestamp":
            return self.at_time(places, position.timestamp_ms)
        if position.kind != "offsets":
            return self.earliest(places) if position.kind == "earliest" else self.latest(places)
        if set(position.offsets) != set(places):
            wrong = sorted(set(position.offsets) ^ set(places))
            names = ", ".join(f"{topic}-{partition}" for topic, partition in wrong)
            raise SettingsError(
                f"archive.starting: offsets must name every partition of the topics once; missing or unknown: {names}"
            )
        return self._given(position.offsets)

    def _given(self, offsets: Mapping[Place, int]) -> Offsets:
        ends = {
            offset_plans.EARLIEST: self.earliest(list(offsets)),
            offset_plans.LATEST: self.latest(list(offsets)),
        }
        return {place: ends[offset][place] if offset in ends else offset for place, offset in offsets.items()}

    def _offsets(self, time_by_place: Mapping[Place, int]) -> Offsets:
        """Returns the offset at each of these times (ms), which may be ``EARLIEST`` or ``LATEST``."""
        from confluent_kafka import OFFSET_INVALID, IsolationLevel, KafkaError, KafkaException, TopicPartition

        committed = self._settings.isolation == "read_committed"
        isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        if not time_by_place:
            return {}

        def ask(left: float) -> Offsets:
            futures = self._admin.list_offsets(
                {TopicPartition(*place): _spec(time_ms) for place, time_ms in time_by_place.items()},
                isolation_level=isolation,
                request_timeout=left,
            )
            offsets = {
                (place.topic, place.partition): future.result().offset for place, future in futures.items()
            }
            unanswered = [place for place, offset in offsets.items() if offset == OFFSET_INVALID]
            if unanswered:  # librdkafka gives this offset instead of an error when it loses the connection
                places_text = ", ".join(f"{topic}-{partition}" for topic, partition in unanswered)
                raise KafkaException(KafkaError(KafkaError._TRANSPORT, f"no answer for {places_text}"))
            return offsets

        return dict(sorted(self._patiently(ask).items()))

    def _listed(self, left: float) -> Any:
        """Returns the cluster's topics. One of ours without a leader is an error to retry; a missing one is not."""
        from confluent_kafka import KafkaError, KafkaException

        listed = self._admin.list_topics(timeout=left)
        for name in self._settings.topics:
            error = listed.topics[name].error if name in listed.topics else None
            if error is not None and error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART and passing(error):
                raise KafkaException(error)
        return listed

    def _patiently(self, ask: Any) -> Any:
        """Returns the answer. Asks again while the broker is away or the partition has no leader."""
        from confluent_kafka import KafkaException

        until = time.monotonic() + self._patience_s
        while True:
            left = until - time.monotonic()
            try:
                return ask(max(0.5, min(5.0, left)))
            except KafkaException as error:
                if time.monotonic() + RETRY_S < until and passing(error.args[0]):
                    time.sleep(RETRY_S)
                    if error.args[0].code() > 0:
                        self._refresh(until)
                    continue
                raise self._told(error.args[0]) from error

    def _refresh(self, until: float) -> None:
        """Makes librdkafka look up leaders and epochs: by itself it keeps those that it knows for 10 s and more."""
        from confluent_kafka import KafkaException

        with suppress(KafkaException):
            self._admin.list_topics(timeout=max(0.1, min(1.0, until - time.monotonic())))

    def _told(self, error: Any) -> ArchiveError:
        if passing(error):
            if (reason := not_let_in(self._settings.bootstrap, self._settings.kafka)) is not None:
                return AwayError(f"{reason}; waited {self._patience_s:g} s")
            return AwayError(
                f"{self._settings.bootstrap} doesn't answer ({error.str()}); waited {self._patience_s:g} s. "
                "Is the broker up, and is this its address?"
            )
        return ArchiveError(f"{self._settings.bootstrap}: {error.str()}")


def _spec(time_ms: int) -> Any:
    from confluent_kafka import admin

    spec: Any = getattr(admin, "OffsetSpec")  # noqa: B009 — untyped
    if time_ms == offset_plans.EARLIEST:
        return spec.earliest()
    return spec.latest() if time_ms == offset_plans.LATEST else spec.for_timestamp(time_ms)


def _matching(pattern: str, names: Mapping[str, Any]) -> list[str]:
    try:
        wanted = re.compile(pattern)
    except re.error as error:
        raise SettingsError(f"archive.topic_pattern: {pattern!r}: {error}") from error
    return [name for name in names if wanted.fullmatch(name) and not name.startswith("__")]


def passing(error: Any) -> bool:
    """Returns whether a retry may get an answer: Kafka calls the error retriable, or librdkafka reached no broker.

    :param error: a ``KafkaError``; codes above 0 are the protocol's, codes below 0 librdkafka's own
    """
    from confluent_kafka import KafkaError

    if error.code() > 0:
        return is_retriable(error.code())
    return error.retriable() or error.code() in {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._RESOLVE,
        KafkaError._NOENT,  # "No leaders found": all brokers are away, or the partition has no leader
    }
