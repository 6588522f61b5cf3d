"""What makes load: our own wire driver, and one on librdkafka, as a workload asks for it."""

from __future__ import annotations

from blumfeld.bench.driver import Driver
from blumfeld.bench.workload import Workload


def make_driver(workload: Workload, goes_first: bool = False) -> Driver:
    """The driver that the workload names.

    :param goes_first: its processes run before the server's (SCHED_RR)
    """
    if workload.driver == "librdkafka":
        from blumfeld.bench.drivers.librdkafka import LibrdkafkaDriver

        return LibrdkafkaDriver(workload, goes_first=goes_first)
    from blumfeld.bench.drivers.wire import WireDriver

    return WireDriver(workload, goes_first=goes_first)
