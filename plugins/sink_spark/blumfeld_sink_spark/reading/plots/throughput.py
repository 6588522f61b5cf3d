"""Draws the archive's rate, from its commit records, and its lag, from the progress files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import msgspec
import numpy as np

from blumfeld_sink_spark.errors import ArchiveError
from blumfeld_sink_spark.reading.committed_files import Committed
from blumfeld_sink_spark.reading.plots import style
from blumfeld_sink_spark.records import CommitRecord

BATCHES_MAX = 1500
"""Batches in the picture. More are joined, or the line would be a block."""
NS_PER_MS = 1_000_000


@attrs.frozen
class Batches:
    """The numbers of batches in the order of their ends, as arrays of the same length."""

    end_ms: Any
    seconds: Any
    messages: Any
    bytes_in: Any
    bytes_out: Any


class _Line(msgspec.Struct):
    """The fields that are read of a line of a progress file."""

    at_ms: int
    lag: dict[str, dict[str, int]] = {}


def batches(records: Sequence[CommitRecord]) -> Batches:
    """Returns the batches that archived messages. Compactions' records have none and are left out."""
    batch_records = sorted(
        (record for record in records if record.messages), key=lambda record: record.committed_ms
    )
    columns = [
        [record.committed_ms for record in batch_records],
        [max(record.seconds, 1e-3) for record in batch_records],
        [record.messages for record in batch_records],
        [record.bytes_in for record in batch_records],
        [sum(entry.bytes for entry in record.files) for record in batch_records],
    ]
    made = Batches(*(np.array(column, dtype=np.float64) for column in columns))
    return _fewer(made) if len(batch_records) > BATCHES_MAX else made


def _fewer(many: Batches) -> Batches:
    edges = np.linspace(0, len(many.end_ms), BATCHES_MAX // 2 + 1).astype(int)[:-1]
    sums = [
        np.add.reduceat(column, edges)
        for column in (many.seconds, many.messages, many.bytes_in, many.bytes_out)
    ]
    return Batches(np.maximum.reduceat(many.end_ms, edges), *sums)


def lags(root: Path) -> dict[str, list[tuple[int, int]]]:
    """Returns by topic the points (time in ms, offsets behind), in the order of time.

    Lines that can't be read are left out: the file is for people, and its last line may be cut off.
    """
    points_by_topic: dict[str, list[tuple[int, int]]] = {}
    for line in _lines(root):
        for topic, partitions in line.lag.items():
            points_by_topic.setdefault(topic, []).append((line.at_ms, sum(partitions.values())))
    return {topic: sorted(points) for topic, points in sorted(points_by_topic.items())}


def _lines(root: Path) -> Iterator[_Line]:
    decode = msgspec.json.Decoder(_Line).decode
    for path in sorted((root / "_progress").glob("*.jsonl")):
        for line in path.read_bytes().splitlines():
            try:
                yield decode(line)
            except msgspec.DecodeError:
                continue


def draw(archive: Committed, folder: Path, svg: bool) -> Path:
    """Draws ``throughput`` and returns its path: messages and bytes a second of each batch, and the lag.

    A single batch has no course over time, so its picture compares the bytes read with the bytes written.

    :raises ArchiveError: no batch with messages is committed
    """
    made = batches(archive.records)
    if not len(made.end_ms):
        raise ArchiveError("plot throughput: no batch with messages is committed yet")
    # Progress files of an archive in an object store lie in its checkpoint, which we don't know.
    behind = lags(archive.local_root()) if archive.is_local else {}
    panels = 3 if behind else 2
    begin = made.end_ms - made.seconds * 1000
    total, size = made.messages.sum(), made.bytes_in.sum()
    count = sum(bool(record.messages) for record in archive.records)
    ratio = f", {size / made.bytes_out.sum():.1f}x smaller" if made.bytes_out.sum() else ""
    times = [int(begin.min()) * NS_PER_MS, int(made.end_ms.max()) * NS_PER_MS]
    title = f"{total:,.0f} messages in {count:,} batch{'es' * (count != 1)}, {size / 1e6:,.1f} MB{ratio}"
    if len(made.end_ms) == 1:
        return _draw_one(made, f"{title}. {style.span_of(times)}", folder, svg)
    with style.figure(
        panels, 2.2 * panels + 1.1, "Throughput", f"{title}. {style.span_of(times)}", sharex=True
    ) as (drawn, axes):
        rate = made.messages / made.seconds
        _steps(axes[0], begin, made.end_ms, rate, style.BLUE, "messages/s")
        axes[0].set_title("messages a second while a batch runs")
        _steps(
            axes[1], begin, made.end_ms, made.bytes_in / made.seconds / 1e6, style.BLUE, "keys and values in"
        )
        _steps(axes[1], begin, made.end_ms, made.bytes_out / made.seconds / 1e6, style.ORANGE, "files out")
        axes[1].set_title("MB a second")
        style.legend(axes[1], 2)
        if behind:
            _lag(axes[2], behind)
        for axis in axes:
            axis.set_ylim(bottom=0)
            style.big_numbers(axis)
            style.time_axis(axis, label=axis is axes[-1])
        return style.save(drawn, folder, "throughput", svg)


def _draw_one(made: Batches, subtitle: str, folder: Path, svg: bool) -> Path:
    seconds = float(made.seconds[0])
    caption = f"{subtitle}, {seconds:,.1f} s: {made.messages[0] / seconds:,.0f} messages/s"
    rates = [column[0] / seconds / 1e6 for column in (made.bytes_in, made.bytes_out)]
    with style.figure(1, 2.4, "Throughput", caption) as (drawn, axis):
        bars = axis.barh(
            ["keys and values in", "files out"], rates, color=[style.BLUE, style.ORANGE], height=0.6
        )
        axis.bar_label(bars, [f" {rate:,.3g} MB/s" for rate in rates])
        axis.invert_yaxis()
        axis.set_xlim(0, max(*rates, 1e-9) * 1.15)
        axis.set_xlabel("MB a second")
        return style.save(drawn, folder, "throughput", svg)


def _steps(axis: Any, begin_ms: Any, end_ms: Any, rate: Any, colour: str, label: str) -> None:
    """Draws a block for each batch, as wide as its duration."""
    x = np.column_stack([begin_ms, begin_ms, end_ms, end_ms]).ravel()
    y = np.column_stack([np.zeros_like(rate), rate, rate, np.zeros_like(rate)]).ravel()
    x = (x * 1000).astype("datetime64[us]")
    axis.fill_between(x, y, color=colour, alpha=0.18, linewidth=0)
    axis.plot(x, y, color=colour, linewidth=1.1, label=label)


def _lag(axis: Any, behind: dict[str, list[tuple[int, int]]]) -> None:
    for colour, (topic, points) in zip(style.CYCLE * len(behind), behind.items(), strict=False):
        at, count = zip(*points, strict=True)
        axis.plot(
            np.array(at, dtype="datetime64[ms]"),
            count,
            drawstyle="steps-post",
            color=colour,
            label=topic,
            linewidth=1.4,
        )
    axis.set_title("messages behind the end of the topic")
    style.legend(axis, min(len(behind), 6))
