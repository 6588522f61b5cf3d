"""The contract of a transport, as tests: subclass :class:`TransportContract` and give it ``make_transport``::

    class TestMyTransport(TransportContract):
        @pytest.fixture
        def make_transport(self) -> MakeTransport:
            return lambda runtime: MyTransport(runtime)

A transport with an event loop of its own overrides ``loop_factory`` too. Clients are blocking sockets on loopback. The
transport runs on its loop in a thread, with the real runtime.
"""

from blumfeld_kit.transport_contract.dials import ByteLayerContract, DialContract
from blumfeld_kit.transport_contract.ends import LimitContract
from blumfeld_kit.transport_contract.faults import FaultContract
from blumfeld_kit.transport_contract.frames import FrameContract
from blumfeld_kit.transport_contract.kit import MakeTransport
from blumfeld_kit.transport_contract.memory import MemoryContract
from blumfeld_kit.transport_contract.order import OrderContract
from blumfeld_kit.transport_contract.regions import RegionContract

__all__ = ["MakeTransport", "TransportContract"]


class TransportContract(
    FrameContract,
    OrderContract,
    RegionContract,
    LimitContract,
    DialContract,
    ByteLayerContract,
    FaultContract,
    MemoryContract,
):
    """The whole contract: about eighty tests, in ten seconds."""
