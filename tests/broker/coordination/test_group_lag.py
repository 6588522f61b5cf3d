"""The lag of one group, as ``/lag?group=NAME`` of the metrics port tells it."""

from __future__ import annotations

import msgspec
import pytest

from blumfeld.broker.coordination import group_lag
from blumfeld.kernel.watching.metrics import NodeMetrics
from tests.broker.batches import batch, produce
from tests.broker.coordination.test_group_coordination import Grouped
from tests.kernel.watching.test_metrics_endpoint import ask, with_endpoint


def asked(broker: Grouped, query: str) -> str:
    text = ""

    async def body(port: int) -> None:
        nonlocal text
        text = await ask(port, f"GET /lag{query} HTTP/1.1\r\nHost: x\r\n\r\n".encode())

    with_endpoint(NodeMetrics(), "ok", body, broker.broker.group_lag)
    return text


def committed(records: int, offset: int) -> Grouped:
    """A broker with records in ``t-0``, and a group ``g`` that has committed an offset there."""
    broker = Grouped()
    for _ in range(records):
        broker.ask(produce(batch()), 9)
    broker.commit(offset)
    return broker


def test_the_lag_is_what_lies_between_the_offset_and_the_high_watermark() -> None:
    text = asked(committed(3, 1), "?group=g")
    assert text.startswith("HTTP/1.1 200 OK\r\n")
    assert 'blumfeld_group_lag{group="g",partition="0",topic="t"} 2.0' in text.splitlines()
    assert 'blumfeld_group_lag_partitions_left_out{group="g"} 0.0' in text.splitlines()


def test_an_offset_beyond_the_end_is_no_lag() -> None:
    assert 'topic="t"} 0.0' in asked(committed(1, 5), "?group=g")


def test_what_is_beyond_the_bound_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_lag, "PARTITIONS_MAX", 0)
    text = asked(committed(1, 0), "?group=g")
    assert "partition=" not in text
    assert 'blumfeld_group_lag_partitions_left_out{group="g"} 1.0' in text.splitlines()


def test_a_partition_that_is_led_elsewhere_is_left_out() -> None:
    broker = committed(1, 0)
    image = broker.metadata.image.topics["t"].partitions[0]
    broker.metadata.change_partition("t", msgspec.structs.replace(image, leader=-1, leader_epoch=1))
    broker.runtime.run_turn()
    assert broker.broker.group_lag("g") == ({}, 1)


def test_a_node_that_does_not_coordinate_the_group_says_so() -> None:
    broker = committed(1, 0)
    broker.lead(leader=-1, epoch=1)
    assert asked(broker, "?group=g").startswith("HTTP/1.1 404 ")


@pytest.mark.parametrize(
    ("query", "status"), [("", 400), ("?group=", 400), ("?group=a&group=b", 400), ("?group=else", 404)]
)
def test_other_questions_are_refused(query: str, status: int) -> None:
    assert asked(committed(1, 0), query).startswith(f"HTTP/1.1 {status} ")
