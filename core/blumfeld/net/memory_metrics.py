"""Metrics of the memory of all connections."""

from __future__ import annotations

from collections.abc import Callable

from blumfeld.net.memory import Memory
from blumfeld.net.transport import BaseTransport
from blumfeld.spi.hooks import Metric

_GAUGES: tuple[tuple[str, str, str, Callable[[Memory], int]], ...] = (
    (
        "blumfeld_network_request_memory_bytes",
        "Memory of unfinished requests of more than 64 KiB",
        "gauge",
        lambda memory: memory.request_bytes,
    ),
    (
        "blumfeld_network_request_memory_max_bytes",
        "The bound on it",
        "gauge",
        lambda memory: memory.request_bytes_max,
    ),
    (
        "blumfeld_network_requests_waiting_for_memory",
        "Unfinished requests that are not read until memory is free",
        "gauge",
        lambda memory: memory.waiting,
    ),
    (
        "blumfeld_network_answer_memory_bytes",
        "Memory of unsent answers of connections that have more than 64 KiB of them",
        "gauge",
        lambda memory: memory.answer_bytes,
    ),
    (
        "blumfeld_network_answer_memory_max_bytes",
        "The bound on it",
        "gauge",
        lambda memory: memory.answer_bytes_max,
    ),
    (
        "blumfeld_network_closed_for_memory_total",
        "Connections that were closed because they stood still while others waited for their memory",
        "counter",
        lambda memory: memory.closed,
    ),
)


def memory_metrics(transport: BaseTransport | None) -> list[Metric]:
    """Returns the metrics of a transport. All are 0 before it listens."""

    def reading(read: Callable[[Memory], int]) -> Callable[[], int]:
        return lambda: 0 if transport is None or transport.memory is None else read(transport.memory)

    return [Metric(name, text, kind, reading(read)) for name, text, kind, read in _GAUGES]
