"""What makes load: our own wire driver, and one on librdkafka, as a workload asks for it."""

from __future__ import annotations

from blumfeld.bench.drivers.contract import Driver
from blumfeld.bench.plan.workload import Workload


def make_driver(workload: Workload, goes_first: bool = False) -> Driver:
    """The driver that the workload names.

    :param goes_first: its processes run before the server's (SCHED_RR)
    """
    if workload.driver == "librdkafka":
        from blumfeld.bench.drivers.librdkafka.driver import LibrdkafkaDriver

        return LibrdkafkaDriver(workload, goes_first=goes_first)
    from blumfeld.bench.drivers.wire.driver import WireDriver

    return WireDriver(workload, goes_first=goes_first)
