"""The archive's readers beside Spark's own way, on the same feeds, cores and JVM, in interleaved rounds."""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.dataset

from blumfeld_sink_spark.bench import rival
from blumfeld_sink_spark.bench.feeds import TABLES, Feed
from blumfeld_sink_spark.errors import ArchiveError, SettingsError
from blumfeld_sink_spark.logins import for_java
from blumfeld_sink_spark.settings import ArchiveSettings
from blumfeld_sink_spark.spark.run.driver import archive

OURS = ("jvm", "python", "direct")
SPARK = {"spark-zstd": "zstd", "spark-snappy": "snappy"}
"""The rival with the codec that we take, and with its default."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One contestant, one feed, once."""

    contestant: str
    kind: str
    round: int
    """0 warms up and isn't counted."""
    seconds: float
    """Time from the start of the query to its end, with the requests and locks around it."""
    rows: int
    bytes_out: int


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A contestant on a feed, over the rounds."""

    contestant: str
    kind: str
    seconds: float
    """Median."""
    messages_per_s: float
    bytes_per_s: float
    bytes_per_row: float
    rate_ratio: float
    """Over the rival with zstd: the median of the ratios within each round."""
    rate_ratio_range: tuple[float, float]
    size_ratio: float


def check(contestants: Sequence[str], jars: Any) -> None:
    """:raises SettingsError: an unknown contestant
    :raises ArchiveError: one needs the connector's jars, which aren't here
    """
    unknown = [name for name in contestants if name not in (*OURS, *SPARK)]
    if unknown:
        raise SettingsError(f"--contestants: {', '.join(unknown)}; allowed: {', '.join((*OURS, *SPARK))}")
    if jars is None and any(name == "jvm" or name in SPARK for name in contestants):
        raise ArchiveError("jvm and spark-… need the Kafka connector's jars: see `blumfeld archive doctor`")


def contest(
    session: Any,
    settings: ArchiveSettings,
    feeds: Sequence[Feed],
    contestants: Sequence[str],
    rounds: int,
    folder: Path,
    on_run: Callable[[Run], None],
) -> list[Run]:
    """Every contestant on every feed, ``rounds`` times after a warm-up; the order turns round with each.

    :raises ArchiveError: two contestants don't come to the same number of rows, or one failed
    """
    runs: list[Run] = []
    for nth in range(rounds + 1):
        order = contestants if nth % 2 else contestants[::-1]
        for feed in feeds:
            for contestant in order:
                run = _run(session, settings, feed, contestant, nth, folder)
                runs.append(run)
                on_run(run)
    _check(runs)
    return runs


def _run(session: Any, settings: ArchiveSettings, feed: Feed, contestant: str, nth: int, folder: Path) -> Run:
    place = folder / "out"
    shutil.rmtree(place, ignore_errors=True)
    begun = time.perf_counter()
    if contestant in SPARK:
        frame = rival.rows(session.spark, feed.kind, settings.bootstrap, feed.topic, _fetch(settings))
        table = place / "table"
        rival.archive(frame, str(table), str(place / "checkpoint"), SPARK[contestant])
    else:
        table = place / TABLES[feed.kind]
        archive(_ours(settings, feed, contestant, place), "once", session=session)
    seconds = time.perf_counter() - begun
    files = sorted(str(path) for path in table.rglob("*.parquet"))
    run = Run(
        contestant=contestant,
        kind=feed.kind,
        round=nth,
        seconds=seconds,
        rows=pyarrow.dataset.dataset(files, format="parquet").count_rows() if files else 0,
        bytes_out=sum(Path(file).stat().st_size for file in files),
    )
    shutil.rmtree(place)
    return run


def _fetch(settings: ArchiveSettings) -> dict[str, str]:
    """Returns the options of Spark's own connector, with the login."""
    return {**rival.BIG_FETCH, **{f"kafka.{key}": value for key, value in for_java(settings.kafka).items()}}


def _ours(settings: ArchiveSettings, feed: Feed, reader: str, place: Path) -> ArchiveSettings:
    return msgspec.structs.replace(
        settings,
        topics=(feed.topic,),
        root=str(place),
        checkpoint="",
        decoders=("binance-usdm",),
        reader=reader,
    )


def _check(runs: Sequence[Run]) -> None:
    for kind in {run.kind for run in runs}:
        contestants = {run.rows: run.contestant for run in runs if run.kind == kind}
        if len(contestants) > 1:
            raise ArchiveError(f"{kind}: not the same rows of all: {contestants}")


def lines(runs: Sequence[Run], feeds: Sequence[Feed], against: str = "spark-zstd") -> list[Line]:
    """Returns the figures of the counted rounds."""
    counted = [run for run in runs if run.round]
    made = []
    for feed in feeds:
        rivals = {run.round: run for run in counted if (run.kind, run.contestant) == (feed.kind, against)}
        for contestant in dict.fromkeys(run.contestant for run in counted):
            own = [run for run in counted if (run.kind, run.contestant) == (feed.kind, contestant)]
            ratios = [rivals[run.round].seconds / run.seconds for run in own if run.round in rivals] or [0.0]
            seconds = statistics.median(run.seconds for run in own)
            made.append(
                Line(
                    contestant=contestant,
                    kind=feed.kind,
                    seconds=seconds,
                    messages_per_s=feed.messages / seconds,
                    bytes_per_s=feed.bytes / seconds,
                    bytes_per_row=own[-1].bytes_out / own[-1].rows,
                    rate_ratio=statistics.median(ratios),
                    rate_ratio_range=(min(ratios), max(ratios)),
                    size_ratio=own[-1].bytes_out / rivals[own[-1].round].bytes_out if rivals else 0.0,
                )
            )
    return made
