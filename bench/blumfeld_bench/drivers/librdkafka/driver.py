"""The librdkafka driver: a workload through the client library that most applications use."""

from __future__ import annotations

import msgspec

from blumfeld_bench.drivers.contract import DriverError
from blumfeld_bench.drivers.wire.driver import WireDriver
from blumfeld_bench.result import Ceiling
from blumfeld_bench.workload import Step


class LibrdkafkaDriver(WireDriver):
    """See :class:`blumfeld_bench.drivers.contract.Driver`. A preload goes through the wire driver, as it isn't
    measured.
    """

    module = "blumfeld_bench.drivers.librdkafka.process"

    def ceiling(self, step: Step, seed: int) -> Ceiling:
        """Return the ceiling of the writing side alone: the null server keeps no records, so that no group can read
        there.

        :raises DriverError: the step only reads
        """
        if step.produce is None:
            raise DriverError(
                f"step {step.name}: librdkafka's reading has no ceiling here, see its busy share"
            )
        return super().ceiling(msgspec.structs.replace(step, consume=None), seed)
