"""The checks of ``archive doctor``. Each gives lines that are fine, a remark, or a failure with its remedy."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

import msgspec

from blumfeld_sink_spark.errors import ArchiveError
from blumfeld_sink_spark.settings import ArchiveSettings
from blumfeld_sink_spark.spark.run.driver import archive
from blumfeld_sink_spark.spark.run.readers import Reader, choose
from blumfeld_sink_spark.spark.runtime.java import find_java
from blumfeld_sink_spark.spark.runtime.session import (
    Session,
    check_pyspark,
    class_archive,
    connector_jars,
    make_class_archive,
    open_session,
)
from blumfeld_sink_spark.spark.topics import offset_plans
from blumfeld_sink_spark.spark.topics.client import Topics, TopicState
from blumfeld_sink_spark.stores.roots import open_store

Grade = Literal["ok", "note", "failed"]

READERS: tuple[Reader, ...] = ("jvm", "python", "direct")
LITTLE_SPACE = 5 << 30
SMOKE_MESSAGES = 2_000
"""Offsets that a smoke query archives of each partition."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One line of ``doctor``."""

    grade: Grade
    about: str
    text: str


def check_all(settings: ArchiveSettings, *, smoke: bool, classes: bool = False) -> Iterator[Finding]:
    """Yields the findings of all checks. The smoke queries come last: they start Spark and take some seconds each.

    :param smoke: run a short streaming query with each reader
    :param classes: make the archive of the JVM's classes, with which Spark starts faster from then on
    """
    yield from _tried("java", _java)
    yield from _tried("pyspark", _packages)
    yield from _tried("connector", lambda: _connector(settings))
    yield from _tried("reader", lambda: [Finding(grade="ok", about="reader", text=_reader(settings))])
    yield from _tried("root", lambda: _root(settings))
    states: list[TopicState] = []
    yield from _tried("topics", lambda: _topics(settings, states))
    if classes:
        yield from _tried("shared classes", lambda: _classes(settings))
    if smoke and states:
        yield from _smokes(settings, states[0])


def _smokes(settings: ArchiveSettings, state: TopicState) -> Iterator[Finding]:
    """Runs a smoke query with each reader that works here, in one session."""
    try:
        jars = connector_jars(settings)
        session = open_session(settings, jars)
    except ArchiveError as error:
        yield Finding(grade="failed", about="spark", text=str(error))
        return
    try:
        for reader in READERS if jars is not None else READERS[1:]:
            yield from _tried(f"smoke query, {reader}", partial(_smoke, settings, session, reader, state))
    finally:
        session.stop()


def _tried(about: str, check: Callable[[], list[Finding]]) -> list[Finding]:
    try:
        return check()
    except (ArchiveError, OSError) as error:
        return [Finding(grade="failed", about=about, text=str(error))]


def _java() -> list[Finding]:
    java = find_java()
    return [Finding(grade="ok", about="java", text=f"{java.version} from {java.origin} ({java.command})")]


def _packages() -> list[Finding]:
    check_pyspark()
    versions = []
    for name in ("pyspark", "pyarrow", "confluent-kafka", "numpy"):
        try:
            versions.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            return [
                Finding(
                    grade="failed",
                    about="packages",
                    text=f"{name} is missing: pip install blumfeld-archive",
                )
            ]
    return [Finding(grade="ok", about="packages", text=", ".join(versions))]


def _connector(settings: ArchiveSettings) -> list[Finding]:
    jars = connector_jars(settings)
    if jars is None:
        return [
            Finding(grade="note", about="connector", text="its jars aren't here; the reader jvm can't be had")
        ]
    versions = ", ".join(f"{name} {number}" for name, number in jars.versions.items())
    return [Finding(grade="ok", about="connector", text=f"{versions} in {jars.origin}")]


def _reader(settings: ArchiveSettings) -> str:
    choice = choose(settings, "run")
    return f"{choice.reader}: {choice.why}"


def _root(settings: ArchiveSettings) -> list[Finding]:
    store = open_store(settings.root)
    probe = f"_staging/doctor-{time.time_ns()}.inprogress"
    store.put(probe, b"doctor")
    store.delete(probe)
    if "://" in settings.root:
        return [Finding(grade="ok", about="root", text=f"{settings.root} can be written")]
    free = shutil.disk_usage(settings.root).free
    grade: Grade = "ok" if free >= LITTLE_SPACE else "note"
    return [
        Finding(
            grade=grade, about="root", text=f"{settings.root} can be written, {free / 2**30:.1f} GiB free"
        )
    ]


def _topics(settings: ArchiveSettings, states: list[TopicState]) -> list[Finding]:
    if not settings.topics and not settings.topic_pattern:
        text = "none named: --topics NAME (and --bootstrap) looks at the broker and tries each reader"
        return [Finding(grade="note", about="topics", text=text)]
    state = Topics(settings).state()
    states.append(state)
    findings = [
        Finding(
            grade="ok",
            about="topics",
            text=f"{settings.bootstrap} answers; "
            + ", ".join(
                f"{topic}-{partition} has {state.earliest[topic, partition]}..{end}"
                for (topic, partition), end in sorted(state.latest.items())
            ),
        )
    ]
    findings += [
        Finding(
            grade="note",
            about="topics",
            text=f"{topic}-{partition} had records and has none: retention goes by the records' own time; "
            "event times of the past need retention.ms=-1",
        )
        for topic, partition in offset_plans.vanished(state.earliest, state.latest)
    ]
    return findings


def _classes(settings: ArchiveSettings) -> list[Finding]:
    path = class_archive(find_java())
    if path.exists():
        return [Finding(grade="ok", about="shared classes", text=f"{path}, {path.stat().st_size >> 20} MiB")]
    seconds = make_class_archive(settings)
    if not path.exists():
        return [
            Finding(
                grade="note", about="shared classes", text="this Java makes no archive; Spark starts slower"
            )
        ]
    return [
        Finding(
            grade="ok",
            about="shared classes",
            text=f"made {path} in {seconds:.0f} s; Spark starts faster now",
        )
    ]


def _smoke(settings: ArchiveSettings, session: Session, reader: Reader, state: TopicState) -> list[Finding]:
    """Archives the last messages of the topics into a temporary folder."""
    starting = {
        place: max(state.earliest[place], end - SMOKE_MESSAGES) for place, end in sorted(state.latest.items())
    }
    with tempfile.TemporaryDirectory(prefix="blumfeld-doctor-") as folder:
        trial = msgspec.structs.replace(
            settings,
            root=folder,
            checkpoint=str(Path(folder) / "_checkpoints" / "doctor"),
            name="doctor",
            reader=reader,
            starting=msgspec.json.encode(offset_plans.to_json(starting)).decode(),
            delta=False,
            iceberg="",
        )
        totals = archive(trial, "once", session=session)
    wanted = sum(state.latest[place] - offset for place, offset in starting.items())
    text = f"{totals.messages:,} messages of {wanted:,} offsets archived in {totals.seconds:.1f} s"
    if wanted and not totals.messages:
        return [
            Finding(grade="note", about=f"smoke query, {reader}", text=f"{text}: no committed record there?")
        ]
    return [Finding(grade="ok", about=f"smoke query, {reader}", text=text)]
