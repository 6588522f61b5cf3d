"""The campaign of quotas: what it holds against a client, and how it reads Java's reports."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from campaigns.quotas.__main__ import Found, Kept, Neighbour, told
from campaigns.quotas.clients import MIB, mib_of


@pytest.mark.parametrize(("measured", "status"), [(951.0, 0), (1_049.0, 0), (940.0, 1), (1_060.0, 1)])
def test_a_client_may_get_five_per_cent_more_or_less(measured: float, status: int) -> None:
    console = Console(file=StringIO(), width=150)
    found = Found(
        [Kept("Java", "producer_byte_rate", 1_000.0, measured)], [Neighbour("nobody", 10, 1.0, 2.0)]
    )
    assert told(console, found, 60.0) == status
    assert isinstance(console.file, StringIO)
    assert ("of its producer_byte_rate" in console.file.getvalue()) is (status == 1)


def test_a_report_of_a_java_consumer_has_what_it_consumed() -> None:
    assert mib_of("2026-11-29 01:50:02:117, 0, 12.5000, 1.9000, 13107, 1992.1, 0, 501, 1.9, 1992.1") == 12.5
    assert mib_of("WARNING: option [topic] is deprecated, and others, too, and more") is None
    assert MIB == 1 << 20
