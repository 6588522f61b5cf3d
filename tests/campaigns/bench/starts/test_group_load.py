"""The bench of loading groups: what it asks, and one small run against this build."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from blumfeld.coordinator.runtime.coordinator import partition_for
from blumfeld.testing import EmbeddedBroker
from blumfeld_bench.drivers.contract import DriverError
from campaigns.bench.rivals import this_build
from campaigns.bench.starts.group_load import Groups
from campaigns.bench.starts.restarts import KILLED, Result, run


def test_one_group_of_each_partition_is_asked() -> None:
    """The one that was written last: its partition is not done before it is there."""
    groups = Groups(groups=300, offsets=1)
    assert [partition_for(groups.group(number), 50) for number in groups.last_groups(50)] == list(range(50))
    assert Groups(0, 1).last_groups(50) == []
    assert len(Groups(3, 1).last_groups(50)) <= 3


def test_a_server_that_lost_an_offset_has_no_result() -> None:
    with EmbeddedBroker() as broker:
        groups = Groups(groups=12, offsets=3)
        groups.fill(broker.port, KILLED)
        groups.await_all(broker.port, KILLED)
        with pytest.raises(DriverError, match="not those that it committed"):
            Groups(groups=12, offsets=4, last=[3]).await_all(broker.port, KILLED)
        with pytest.raises(DriverError, match="group-000012 has 0 offsets"):
            Groups(groups=13, offsets=3, last=[12]).await_all(broker.port, KILLED)


@pytest.mark.slow
def test_a_small_run_measures_all_starts(tmp_path: Path) -> None:
    """Every group that is asked must be back with all that it committed, or there is no result."""
    result = run([this_build()], tmp_path, lambda: Groups(groups=40, offsets=5), 1, Console(quiet=True))
    assert [start.kind for start in result.starts] == list(Groups(1, 1).kinds)
    assert all(start.served_s >= start.answers_s > 0 for start in result.starts)
    assert msgspec.json.decode(msgspec.json.encode(result), type=Result) == result
