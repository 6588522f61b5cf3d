"""The world of a node, simulated: clock and event loop, chance, files, disk faults and power cuts.

:class:`FakeRuntime` is the runtime that a plug-in is handed. Its files are in memory, and its time is virtual.
"""

from blumfeld.testing.fakes.disk import Fault
from blumfeld.testing.fakes.runtime import FakeRuntime

__all__ = ["FakeRuntime", "Fault"]
