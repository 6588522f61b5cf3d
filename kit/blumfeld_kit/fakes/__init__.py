"""The world of a node, simulated: clock and event loop, chance, files, disk faults and power cuts.

:class:`FakeRuntime` is the runtime that a plug-in is handed. Its files are in memory, and its time is virtual.
"""

from blumfeld_kit.fakes.disk import Fault
from blumfeld_kit.fakes.object_store import Fate, SimulatedBucket, SimulatedStore, StoreFaults
from blumfeld_kit.fakes.real_time import RealTimeRuntime
from blumfeld_kit.fakes.runtime import FakeRuntime

__all__ = [
    "FakeRuntime",
    "Fate",
    "Fault",
    "RealTimeRuntime",
    "SimulatedBucket",
    "SimulatedStore",
    "StoreFaults",
]
