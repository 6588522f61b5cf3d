"""The transport contract on the simulated transport: the kit's blocking clients come through a gateway of sockets."""

from __future__ import annotations

import pytest

from blumfeld.spi.runtime import Runtime
from blumfeld_kit.transport_contract import TransportContract
from blumfeld_kit.transport_contract.kit import MakeTransport
from tests.kit.simulation.transport.gateway import GatewayTransport

FULL = "the simulated network takes whatever is sent: nothing holds a sender back"
HALF = "the simulated network closes a connection in both directions at once"
SOCKETS = "the descriptors are the gateway's"
NOT_SIMULATED = {
    "test_unfinished_frames_are_bounded_together": FULL,
    "test_slow_readers_of_large_answers_are_bounded_together": FULL,
    "test_a_slow_reader_is_not_read_and_loses_nothing": FULL,
    "test_everything_passes_through_the_layer": HALF,
    "test_requests_are_served_although_the_peer_ended_while_the_layer_worked": HALF,
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


def test_every_test_that_is_left_out_is_one_of_the_kit() -> None:
    assert all(hasattr(TransportContract, name) for name in NOT_SIMULATED)
