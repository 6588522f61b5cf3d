"""Load drivers: our own frames over sockets (``wire``; ``transactions`` for transactional producers), or librdkafka's
clients, as a workload asks for."""

from __future__ import annotations

from blumfeld_bench.drivers.contract import Driver
from blumfeld_bench.workload import Workload


def make_driver(workload: Workload, goes_first: bool = False) -> Driver:
    """Return the driver that the workload names.

    :param goes_first: run the driver's processes before the server's (SCHED_RR)
    """
    if workload.driver == "librdkafka":
        from blumfeld_bench.drivers.librdkafka.driver import LibrdkafkaDriver

        return LibrdkafkaDriver(workload, goes_first=goes_first)
    if workload.driver == "transactions":
        from blumfeld_bench.drivers.transactions.driver import TransactionsDriver

        return TransactionsDriver(workload, goes_first=goes_first)
    from blumfeld_bench.drivers.wire.driver import WireDriver

    return WireDriver(workload, goes_first=goes_first)
