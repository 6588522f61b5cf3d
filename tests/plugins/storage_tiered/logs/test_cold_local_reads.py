"""A local read that waits for the disk while its segment leaves it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from blumfeld.spi.completion import Completion
from blumfeld.spi.storage import LogRead, OffsetOutOfRangeError
from blumfeld_storage_tiered.logs.tiered_log import TieredLog


def test_a_cold_read_of_a_segment_that_left_the_disk_is_not_out_of_range() -> None:
    cold: Completion[LogRead] = Completion()
    nothing: Any = lambda *_: None  # noqa: E731
    names = ("place", "place_as_is", "write", "flush", "roll", "compact", "segments", "size_bytes")
    local = SimpleNamespace(
        **dict.fromkeys(names, nothing),
        aux=SimpleNamespace(read=lambda _: b"0", write=nothing),
        log_start_offset=0,
        written_end_offset=100,
        read=lambda *_: cold,
    )
    log = TieredLog(cast("Any", local), cast("Any", None), cast("Any", None), nothing)
    outcome = cast("Completion[LogRead]", log.read(40, 1000, 100, True))
    local.log_start_offset = 50
    cold.fail(OffsetOutOfRangeError("offset 40 is outside of 50..100"))
    assert outcome.error is None
    assert outcome.result().size_bytes == 0
