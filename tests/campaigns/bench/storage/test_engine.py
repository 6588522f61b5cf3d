"""The bare loop and the engine do the same work, and what is made of their times is right."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.console import Console

from blumfeld.wire.batches.record_batch import RecordBatch
from campaigns.bench.storage.engine import Row, measure, row, stretch, table
from campaigns.bench.storage.engine_contestants import SHAPES, Bare, Engine, Shape, Turns, batch_of

APPEND = Shape("append", "append", 1024, batches=3, partitions=2)


@pytest.mark.parametrize("size_bytes", [1024, 16_384, 1 << 20])
def test_a_batch_has_just_so_many_bytes(size_bytes: int) -> None:
    batch = RecordBatch(memoryview(batch_of(size_bytes)))
    assert batch.size_bytes == size_bytes
    batch.verify_crc()


def test_both_write_the_same_bytes_in_as_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: dict[str, list[int]] = {"bare": [], "engine": []}
    for name, contestant in (("bare", Bare(APPEND, tmp_path)), ("engine", Engine(APPEND, tmp_path))):
        with contestant.working() as work:
            work(5)
            files = [p for p in tmp_path.rglob("*") if p.suffix == ".log" or p.name.startswith("bare-")]
            written[name] = sorted(path.stat().st_size for path in files)
        if isinstance(contestant, Engine):
            contestant.close()
    assert written["bare"] == written["engine"] == [5 * 3 * 1024] * 2


def test_both_send_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("campaigns.bench.storage.engine_contestants.KEPT_BYTES", 4 << 20)
    sent: list[tuple[str, int, int]] = []
    sendfile = os.sendfile

    def watched(out: int, file: int, position: int, size: int) -> int:
        name = os.readlink(f"/proc/self/fd/{file}").rpartition("/")[2]
        sent.append((name, position, size))
        return sendfile(out, file, position, size)

    monkeypatch.setattr(os, "sendfile", watched)
    shape = Shape("read", "read", 16_384, sink="null")
    with Bare(shape, tmp_path).working() as work:
        sent.clear()
        work(5)
    bare, sent[:] = list(sent), []
    engine = Engine(shape, tmp_path)
    with engine.working() as work:
        sent.clear()
        work(5)
    engine.close()
    assert [(position, size) for _, position, size in bare] == [(n << 20, 1 << 20) for n in (0, 1, 2, 3, 0)]
    names = [name for name, _, _ in sent]
    assert len(set(names)) == 4, "a segment holds a quarter"
    assert names[0] == names[4]
    assert all((position, size) == (0, 1 << 20) for _, position, size in sent)


def test_an_engine_that_takes_twice_as_long_has_half_the_rate() -> None:
    measured_row = row(APPEND, "any", 10, [2e-6, 2.2e-6, 1.8e-6], [1e-6, 1.1e-6, 0.9e-6])
    assert measured_row.ratio == pytest.approx(0.5)
    assert measured_row.interval[0] <= 0.5 <= measured_row.interval[1]
    assert measured_row.megabytes_per_s == pytest.approx(6 * 1024 / 2)


def test_a_turn_is_what_is_timed() -> None:
    clock = [0.0]

    class Slow:
        name = "slow"

        @contextmanager
        def working(self) -> Iterator[Turns]:
            clock[0] += 100

            def work(turns: int) -> None:
                clock[0] += 3 * turns

            yield work
            clock[0] += 100

    assert stretch(Slow(), 7, lambda: clock[0]) == 3


@pytest.mark.parametrize(
    "shape",
    [SHAPES[2], *(pytest.param(shape, marks=pytest.mark.slow) for shape in SHAPES[3:5]), SHAPES[5]],
    ids=lambda shape: shape.name,
)
def test_every_kind_is_measured(shape: Shape, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("campaigns.bench.storage.engine.WARM_UP_TURNS", 2)
    monkeypatch.setattr("campaigns.bench.storage.engine_contestants.KEPT_BYTES", 4 << 20)
    measured_row = measure(shape, tmp_path, "storage_local", rounds=1, stretch_s=1e-9)
    assert measured_row.ratio > 0
    assert not list(tmp_path.glob("bare-*"))
    assert not list(tmp_path.rglob("*.log")) or all(
        "-delete" in str(path) for path in tmp_path.rglob("*.log")
    )
    shown = io.StringIO()
    Console(file=shown, width=120).print(table([measured_row], 1))
    assert shape.name.split(",")[0][:20] in shown.getvalue()


def test_the_table_says_who_syncs_each() -> None:
    shape = next(shape for shape in SHAPES if shape.sync_each)
    shown = io.StringIO()
    Console(file=shown, width=200).print(table([Row(shape, "any", 1, 1.0, 2.0, 2.0, (1.0, 3.0))], 1))
    assert "bare syncs each" in shown.getvalue()
