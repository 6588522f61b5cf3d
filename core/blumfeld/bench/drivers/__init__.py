"""What makes load: our own wire driver, and one on librdkafka, as a workload asks for it."""

from __future__ import annotations

from blumfeld.bench.driver import Driver
from blumfeld.bench.workload import Workload


def make_driver(workload: Workload) -> Driver:
    """The driver that the workload names."""
    if workload.driver == "librdkafka":
        from blumfeld.bench.drivers.librdkafka import LibrdkafkaDriver

        return LibrdkafkaDriver(workload)
    from blumfeld.bench.drivers.wire import WireDriver

    return WireDriver(workload)
