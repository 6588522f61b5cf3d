"""The settings of an archive, checked before anything is opened."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from blumfeld.feeds import RECV_HEADER
from blumfeld.plugging.errors import ManifestError, Problem, file_problem, shown
from blumfeld.plugging.sections import read_section
from blumfeld_sink_spark.errors import SettingsError
from blumfeld_sink_spark.logins import read_login

PRECISION_MAX = 38
COMMAND_LINE = "command line"
"""Source that errors name for settings without a file."""
COMPACTION = "compact"
"""Name of the query and the lease of ``archive compact``, so no archive may have it."""


class ArchiveSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The manifest's section ``[archive]``. Options of the command line have the same names."""

    bootstrap: str = "127.0.0.1:9092"
    """``bootstrap.servers``."""
    topics: tuple[str, ...] = ()
    """Topic names. Either these or ``topic_pattern``."""
    topic_pattern: str = ""
    root: str = "archive"
    """A folder, or the URL of an object store (``s3://bucket/prefix``)."""
    checkpoint: str = ""
    """Folder of Spark's checkpoint; empty is ``_checkpoints/<name>`` under a local root."""
    name: str = "archive"
    reader: Literal["auto", "jvm", "python", "direct"] = "auto"
    decoders: tuple[str, ...] = ("raw",)
    """``NAME`` for all topics, or ``TOPIC=NAME``. Several decoders fill several tables. A decoder with arguments is
    ``NAME:ARGUMENTS`` (``confluent:trades?price=px``).
    """
    decoder_plugins: tuple[str, ...] = ()
    """Plug-ins that bring decoders, by their entry point."""
    starting: str = "earliest"
    """``earliest``, ``latest``, ``timestamp:MS``, or Spark's JSON ``{"topic": {"0": 5}}``. It counts only for a new
    checkpoint.
    """
    ending: str = ""
    """End of a ``backfill``: ``timestamp:MS`` or JSON; empty is the topics' end at the start of the run."""
    max_offsets_per_trigger: int = 0
    """Limit of a batch, over all partitions; 0 is no limit."""
    trigger_ms: int = 10_000
    reconnect_timeout_ms: int = 86_400_000
    """Longest outage of the broker that ``run`` waits for; 0 gives up at once, -1 never does. The default of a day is
    longer than a maintenance, and shorter than Kafka's default retention of seven days.
    """
    isolation: Literal["read_committed", "read_uncommitted"] = "read_committed"
    headers: bool = False
    """Read headers even where ``recv_header`` is empty. The table ``raw`` keeps them."""
    recv_header: str = RECV_HEADER
    """Header with the time of receipt, ns in ASCII. A record without it gets its Kafka timestamp (ms) as ``ts_recv``.
    Empty takes every record's timestamp, and headers are then not read.
    """
    fail_on_data_loss: bool = True
    kafka: dict[str, str] = {}
    """Client configuration with Kafka's names (``security.protocol``…)."""
    command_config: str = ""
    """File of a client's properties for TLS and a login, as Kafka's tools take them. Its keys join ``kafka``."""
    master: str = "local[*]"
    spark: dict[str, str] = {}
    jars: str = ""
    """Folder with the connector's jars; empty searches the usual places."""
    decimal: str = "38,18"
    """Precision and scale of prices and sizes."""
    compression: str = "zstd:3"
    row_group_rows: int = 1_048_576
    schema_registry: str = ""
    """URL (``user:password@`` allowed), or a folder with files ``<id>.avsc``, ``<id>.desc`` (from ``protoc
    --include_imports``) or ``<id>.json``.
    """
    skew_ms: int = 10_000
    """Largest distance between ``ts_recv`` and ``ts_event``. A larger one is a gap of the kind ``skew``; 0 is off."""
    delta: bool = False
    """Commit each batch to Delta tables under the root too."""
    iceberg: str = ""
    """URI of a pyiceberg catalog (``sqlite:///…``) that each batch is committed to as well."""

    @property
    def with_headers(self) -> bool:
        """Whether rows carry the records' headers."""
        return self.headers or bool(self.recv_header)

    @property
    def price_type(self) -> tuple[int, int]:
        """(precision, scale) of prices and sizes."""
        precision, scale = self.decimal.split(",")
        return int(precision), int(scale)

    @property
    def checkpoint_location(self) -> str:
        """Folder of Spark's checkpoint."""
        return self.checkpoint or str(Path(self.root) / "_checkpoints" / self.name)


def forgone(settings: ArchiveSettings) -> str:
    """Returns a sentence on what an archive with these settings can't do later (``replay``); empty if it can."""
    if any(entry == "raw" or entry.endswith("=raw") for entry in settings.decoders):
        return ""
    return "the messages themselves are not kept, and `replay` needs them: --decoder raw beside the others keeps them"


def absolute(settings: ArchiveSettings) -> ArchiveSettings:
    """Returns the settings with absolute paths for root, checkpoint and a folder of schemas.

    A cluster's executors have another working directory. A relative path would be another folder there, and the files
    that they stage would be lost.
    """

    def resolved(path: str) -> str:
        return path if not path or "://" in path else str(Path(path).absolute())

    return msgspec.structs.replace(
        settings,
        root=resolved(settings.root),
        checkpoint=resolved(settings.checkpoint),
        schema_registry=resolved(settings.schema_registry),
    )


def load(path: str | None, overrides: dict[str, Any], *, topics_needed: bool = True) -> ArchiveSettings:
    """Returns the settings of the manifest's section ``[archive]``, overridden by the command line's values
    (``None`` leaves a key as it is).

    :param topics_needed: whether topics must be named; ``doctor`` runs without them
    :raises SettingsError: no such file, or the manifest's own errors: path of the key, what was found, what is allowed
    """
    source, text = path or COMMAND_LINE, ""
    given = {key: value for key, value in overrides.items() if value is not None}
    try:
        if path is not None:
            text = _text_of(path)
        settings = read_section(text, "archive", ArchiveSettings, source, given)
        if settings.command_config:
            kafka = read_login(settings.command_config, settings.kafka)
            settings = msgspec.structs.replace(settings, kafka=kafka, command_config="")
    except ManifestError as error:
        raise SettingsError(str(error)) from error
    if not topics_needed and not settings.topics and not settings.topic_pattern:
        check(msgspec.structs.replace(settings, topics=("named-later",)), source)
        return settings
    return check(settings, source)


def _text_of(path: str) -> str:
    try:
        return Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ManifestError(path, [file_problem(error)]) from None


def check(settings: ArchiveSettings, source: str = COMMAND_LINE) -> ArchiveSettings:
    """Returns the settings if they are right.

    :raises SettingsError: with all wrong values, in the form of the manifest's errors
    """
    if problems := [*_problems(settings)]:
        raise SettingsError(str(ManifestError(source, problems)))
    return settings


def _problems(settings: ArchiveSettings) -> Iterator[Problem]:
    if bool(settings.topics) == bool(settings.topic_pattern):
        mistake = "topics and topic_pattern" if settings.topics else "neither topics nor topic_pattern"
        yield Problem("archive.topics", mistake, "one of the two: names, or a regular expression")
    if settings.name == COMPACTION or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", settings.name):
        allowed = f"letters, digits, '.', '_' and '-', and not {COMPACTION}"
        yield Problem("archive.name", shown(settings.name), allowed)
    if not settings.decoders:
        yield Problem("archive.decoders", "none", "NAME or TOPIC=NAME, raw at least")
    yield from _decimal_problems(settings.decimal)
    for key, least, allowed in (
        ("trigger_ms", 0, "0 (at once) or more"),
        ("reconnect_timeout_ms", -1, "-1 (no limit), 0 (give up at once) or more"),
        ("row_group_rows", 1, "1 or more"),
        ("max_offsets_per_trigger", 0, "0 (no limit) or more"),
    ):
        value = getattr(settings, key)
        if value < least:
            yield Problem(f"archive.{key}", str(value), allowed)
    if "://" in settings.root and not settings.checkpoint:
        allowed = f"a local folder, as the root {settings.root} is an object store"
        yield Problem("archive.checkpoint", "none", allowed)


def _decimal_problems(given: str) -> Iterator[Problem]:
    match = re.fullmatch(r"(\d{1,2}),(\d{1,2})", given)
    if not match or not 1 <= int(match[1]) <= PRECISION_MAX or int(match[2]) > int(match[1]):
        allowed = f"PRECISION,SCALE with a precision up to {PRECISION_MAX} and a scale not above it: 38,18"
        yield Problem("archive.decimal", shown(given), allowed)
