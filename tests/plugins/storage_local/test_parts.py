"""A log is put together from parts, and a storage that wraps it can put another in the place of one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from blumfeld.spi.storage import LogRead, OffsetOutOfRangeError
from blumfeld.testing.storage_driver.node import Node
from blumfeld_storage_local.compaction.cleaner_passes import CleanerPasses
from blumfeld_storage_local.logs.active_writer import ActiveWriter
from blumfeld_storage_local.logs.log_cutover import LogCutOver
from blumfeld_storage_local.logs.log_flushing import LogFlushing
from blumfeld_storage_local.logs.log_reader import LogReader
from blumfeld_storage_local.logs.partition_log import LocalLog
from blumfeld_storage_local.logs.timestamp_queries import TimestampQueries
from blumfeld_storage_local.logs.truncation import Truncation
from tests.plugins.storage_local.moving_tools import make_node
from tests.plugins.storage_local.test_log import Events

PARTS = (ActiveWriter, CleanerPasses, LogCutOver, LogFlushing, LogReader, TimestampQueries, Truncation)


@pytest.fixture
def node() -> Iterator[Node]:
    node = make_node(Events())
    yield node
    node.end()


@pytest.mark.parametrize("part", [LocalLog, *PARTS])
def test_no_part_inherits_from_another(part: type[object]) -> None:
    assert part.__mro__ == (part, object)


class Elsewhere(LogReader):
    """A reader that finds what lies below the local log somewhere else, as a tiered storage's will."""

    __slots__ = ()

    def read(
        self, offset: int, bytes_max: int, end_offset: int, minimum_one_batch: bool, look: bool
    ) -> LogRead:
        if offset < self._log.log_start_offset:
            return LogRead([b"remote"], 6, self._log.log_start_offset)
        return super().read(offset, bytes_max, end_offset, minimum_one_batch, look)


def test_another_reader_serves_what_the_local_log_lacks(node: Node) -> None:
    log = node.open()
    log.fill(5, 5)
    local = log.log
    assert isinstance(local, LocalLog)
    local.advance_log_start(5)
    with pytest.raises(OffsetOutOfRangeError):
        local.read(2, 1000, 10, True)
    local.reader = Elsewhere(local, local._segments, local._active)
    found = local.read(2, 1000, 10, True)
    assert isinstance(found, LogRead)
    assert list(found.parts) == [b"remote"]
    assert log.spans(5) == [(5, 10)]
