"""A message as long as a frame before the login may be is work for a moment: strangers send as many as they like."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest

from blumfeld.client.security.refusals import Malformed
from blumfeld.wire.errors import BrokerError
from blumfeld_security.exchanges.plain import read_plain_token
from blumfeld_security.exchanges.scram import read_client_final
from blumfeld_security.sasl.authenticators import InvalidToken

FRAME_BYTES = 524_288


def refuse_dots() -> None:
    pytest.importorskip("joserfc")
    from blumfeld_security.sasl.bearer_tokens import key_id

    key_id("." * FRAME_BYTES)


def refuse_nuls() -> None:
    read_plain_token(b"\0" * FRAME_BYTES)


@pytest.mark.parametrize("refuse", [refuse_dots, refuse_nuls])
def test_parts_are_counted_before_they_are_split(refuse: Callable[[], None]) -> None:
    with pytest.raises((BrokerError, InvalidToken)):
        refuse()  # its modules are imported
    tracemalloc.start()
    try:
        with pytest.raises((BrokerError, InvalidToken)):
            refuse()
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 2 * FRAME_BYTES


def test_a_message_of_scram_as_long_as_a_frame_is_none() -> None:
    with pytest.raises(Malformed) as caught:
        read_client_final(b"c=biws,r=x,p=" + b"AAAA" * (FRAME_BYTES // 4))
    assert "more than 65536 bytes" in caught.value.reason
