"""The librdkafka driver: what a client that people use makes of a step."""

from __future__ import annotations

import msgspec

from blumfeld.bench.drivers.contract import DriverError
from blumfeld.bench.drivers.wire.driver import WireDriver
from blumfeld.bench.plan.workload import Step
from blumfeld.bench.result import Ceiling


class LibrdkafkaDriver(WireDriver):
    """See :class:`blumfeld.bench.drivers.contract.Driver`. It preloads by the wire: nobody measures that."""

    module = "blumfeld.bench.drivers.librdkafka.process"

    def ceiling(self, step: Step, seed: int) -> Ceiling:
        """Of the writing side alone: against a server that keeps nothing no group can read.

        :raises DriverError: the step only reads
        """
        if step.produce is None:
            raise DriverError(
                f"step {step.name}: librdkafka's reading has no ceiling here, see its busy share"
            )
        return super().ceiling(msgspec.structs.replace(step, consume=None), seed)
