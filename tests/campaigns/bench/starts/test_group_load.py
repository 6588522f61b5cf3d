"""The bench of loading groups: what it asks, what it shows, and one small run against this build."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from blumfeld.coordinator.runtime.partitioning import partition_for
from blumfeld.testing import EmbeddedBroker
from blumfeld_bench.drivers.contract import DriverError
from blumfeld_bench.running.machine import this_machine
from campaigns.bench.rivals import this_build
from campaigns.bench.starts.group_load import KINDS, Result, Start, run, table
from campaigns.bench.starts.group_load_data import Shape, await_all, fill, last_groups


def test_one_group_of_each_partition_is_asked() -> None:
    """The one that was written last: its partition is not done before it is there."""
    shape = Shape(groups=300, offsets=1)
    asked = last_groups(shape, 50)
    assert [partition_for(shape.group(number), 50) for number in asked] == list(range(50))
    assert last_groups(Shape(0, 1), 50) == []
    assert len(last_groups(Shape(3, 1), 50)) <= 3


def test_a_server_that_lost_an_offset_has_no_result() -> None:
    """What it committed has to be there, each number of it."""
    with EmbeddedBroker() as broker:
        port = broker.port
        shape = Shape(groups=12, offsets=3)
        partitions = fill(port, shape)
        await_all(port, shape, last_groups(shape, partitions))
        with pytest.raises(DriverError, match="not those that it committed"):
            await_all(port, Shape(groups=12, offsets=4), [3])
        with pytest.raises(DriverError, match="group-000012 has 0 offsets"):
            await_all(port, Shape(groups=13, offsets=3), [12])


def start(server: str, kind: str, answers_s: float, loaded_s: float) -> Start:
    return Start(
        server=server,
        kind=kind,
        answers_s=answers_s,
        loaded_s=loaded_s,
        rss_bytes=50_000_000,
        rss_peak_bytes=60_000_000,
        cpu_s=1.5,
    )


def test_the_table_tells_load_from_start() -> None:
    """Medians, and ratios to the last server: of all that it took, and of what came after the first answer."""
    starts = [start("a", kind, 0.5, 0.5 + at) for at, kind in enumerate(KINDS)]
    starts += [start("b", kind, 4.0, 4.0 + 2 * at) for at, kind in enumerate(KINDS)]
    result = Result(machine=this_machine(), groups=10, offsets=5, starts=starts)
    shown = Console(width=200, record=True, file=StringIO())
    shown.print(table(result))
    text = shown.export_text()
    assert "10 groups × 5 offsets = 50" in text
    killed = next(line for line in text.splitlines() if "killed" in line and " a " in line)
    assert [cell.strip() for cell in killed.split("│")][3:8] == ["0.50", "2.50", "0.31×", "2.00", "0.50×"]


@pytest.mark.slow
def test_a_small_run_measures_all_starts(tmp_path: Path) -> None:
    """Every group that is asked must be back with all that it committed, or there is no result."""
    result = run([this_build()], tmp_path, Shape(groups=40, offsets=5), 1, Console(quiet=True))
    assert [start.kind for start in result.starts] == list(KINDS)
    assert all(start.loaded_s >= start.answers_s > 0 for start in result.starts)
    assert msgspec.json.decode(msgspec.json.encode(result), type=Result) == result
