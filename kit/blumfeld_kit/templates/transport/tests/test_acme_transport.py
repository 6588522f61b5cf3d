"""The contract of every transport."""

from __future__ import annotations

import pytest
from blumfeld_kit import TransportContract
from blumfeld_kit.transport_contract import MakeTransport

from acme_transport import AcmeTransport


class TestAcmeTransport(TransportContract):
    """All that every transport must hold."""

    @pytest.fixture
    def make_transport(self) -> MakeTransport:
        """Return what makes one."""
        return AcmeTransport
