"""A read is judged by what was promised when it was asked for."""

from __future__ import annotations

import pytest

from blumfeld.spi.storage import TopicPartition
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.fetch import PartitionData
from blumfeld_kit.simulation.clients.oracle import Oracle, ViolationError
from blumfeld_kit.simulation.clients.reads import Read, judged

AT = TopicPartition("topic", 0)
OUT = PartitionData(partition_index=0, error_code=ErrorCode.OFFSET_OUT_OF_RANGE)


@pytest.mark.parametrize("promised", [False, True, None])
def test_an_acknowledgement_may_overtake_the_answer_that_a_position_is_not_there(
    promised: bool | None,
) -> None:
    """``None``: a reader that can't begin anew."""
    oracle = Oracle()
    oracle.add(AT, flushed=True)
    oracle.sent(AT, [b"p#0#"])
    oracle.acked(AT, 0, [b"p#0#"])
    if promised is False:
        assert judged(oracle, AT, 1, OUT, promised=promised) == Read([], 0, OUT)
        return
    with pytest.raises(ViolationError, match=r"out of range|OFFSET_OUT_OF_RANGE"):
        judged(oracle, AT, 1, OUT, promised=promised)


def test_a_hole_is_found() -> None:
    Read([(3, b""), (4, b"")], 5, OUT).check_whole(AT, 3)
    with pytest.raises(ViolationError, match="5 follows 3: a hole"):
        Read([(3, b""), (5, b"")], 6, OUT).check_whole(AT, 3)
