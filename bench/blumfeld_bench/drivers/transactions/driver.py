"""The driver of transactional producers: a closed loop of transactions, by the same program for every server."""

from __future__ import annotations

from blumfeld_bench.drivers.contract import DriverError, Task
from blumfeld_bench.drivers.spec import ProcessSpec
from blumfeld_bench.drivers.transactions.frames import api_versions
from blumfeld_bench.drivers.wire.driver import WireDriver
from blumfeld_bench.drivers.wire_client import WireClient
from blumfeld_bench.result import Ceiling
from blumfeld_bench.workload import Step


class TransactionsDriver(WireDriver):
    """See :class:`blumfeld_bench.drivers.contract.Driver`."""

    module = "blumfeld_bench.drivers.transactions.process"

    def ceiling(self, step: Step, seed: int) -> Ceiling:
        """Transactions have no ceiling: the null server knows none.

        :raises DriverError: always
        """
        raise DriverError("the null server knows no transactions: see the driver's busy share")

    def _specs(self, task: Task) -> list[ProcessSpec]:
        produce = task.step.produce
        if produce is None or produce.transaction is None:
            raise DriverError(f"step {task.step.name} has no transactions")
        with WireClient(task.host, task.port) as client:
            spoken = client.versions()
        for key, version in api_versions(produce.transaction.version).items():
            low, high = spoken.get(key, (0, -1))
            if not low <= version <= high:
                raise DriverError(
                    f"the server speaks versions {low} to {high} of API key {key}; the driver needs {version}"
                )
        return super()._specs(task)
