"""The transport contract on the simulated transport: the kit's blocking clients come through a gateway of sockets."""

from __future__ import annotations

import pytest

from blumfeld.spi.runtime import Runtime
from blumfeld.spi.transport import Limits, Listener
from blumfeld_kit.transport_contract import TransportContract
from blumfeld_kit.transport_contract.kit import Handler, MakeTransport, Net, XorLayer
from tests.kit.simulation.transport.gateway import GatewayTransport

LAYER = "the simulated transport refuses byte layers"
MEMORY = "the simulated transport has no bound on memory, and no backpressure"
RATE = "the simulated transport has no limit on the rate of connections"
IDLE = "the simulated transport closes no idle connection"
HALF = "the simulated network closes a connection in both directions at once"
SOCKETS = "the descriptors are the gateway's"
NOT_SIMULATED = {
    "test_everything_passes_through_the_layer": LAYER,
    "test_a_broken_layer_closes_the_connection": LAYER,
    "test_both_ends_may_have_one": LAYER,
    "test_unfinished_frames_are_bounded_together": MEMORY,
    "test_every_frame_completes_under_a_bound_that_holds_none": MEMORY,
    "test_a_frame_that_stands_still_gives_way_to_those_that_wait": MEMORY,
    "test_a_frame_that_stands_still_stays_while_nobody_waits": MEMORY,
    "test_a_connection_that_waits_for_memory_may_go": MEMORY,
    "test_slow_readers_of_large_answers_are_bounded_together": MEMORY,
    "test_a_slow_reader_that_reads_is_not_closed": MEMORY,
    "test_file_regions_hold_no_memory": MEMORY,
    "test_a_slow_reader_is_not_read_and_loses_nothing": MEMORY,
    "test_connections_beyond_the_rate_wait": RATE,
    "test_a_crowd_is_let_in_one_by_one": RATE,
    "test_an_idle_connection_is_closed": IDLE,
    "test_a_connection_that_waits_for_us_is_not_idle": IDLE,
    "test_who_has_stopped_sending_is_waited_for_no_longer_than_that": IDLE,
    "test_a_client_that_has_no_more_to_say_still_gets_its_answers": HALF,
    "test_without_descriptors_others_are_served_and_who_waits_comes_later": SOCKETS,
}
"""Tests of the kit that the simulated transport can't pass, or would pass without doing what they ask; each with its
reason, which docs/not-implemented.md has, too.
"""


class TestSimulatedTransport(TransportContract):
    @pytest.fixture(autouse=True)
    def _simulated(self, request: pytest.FixtureRequest) -> None:
        name = request.node.originalname
        if name in NOT_SIMULATED:
            pytest.skip(NOT_SIMULATED[name])

    @pytest.fixture
    def make_transport(self, _simulated: None) -> MakeTransport:
        def make(runtime: Runtime) -> GatewayTransport:
            return GatewayTransport.made(runtime)

        return make

    def test_a_byte_layer_is_refused(self, net: Net) -> None:
        """And not left out in silence: a composition with TLS would seem to have been tried."""
        listener = Listener(name="TLS", kind="broker", host="127.0.0.1", port=0)
        with pytest.raises(OSError, match="byte layers"):
            net.run(net.transport.listen(listener, Handler(), Limits(), XorLayer))


def test_every_test_that_is_left_out_is_one_of_the_kit() -> None:
    assert all(hasattr(TransportContract, name) for name in NOT_SIMULATED)
