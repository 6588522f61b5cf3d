"""Limits by address count a client once, whichever of its addresses it comes from."""

from __future__ import annotations

import pytest

from blumfeld_security.addresses import origin
from blumfeld_security.sasl.failed_logins import FailedLogins


@pytest.mark.parametrize(
    ("address", "client"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:DB8:1:2::9", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
        ("", ""),
        ("no:address", "no:address"),
    ],
)
def test_an_ipv6_address_counts_with_its_whole_64(address: str, client: str) -> None:
    assert origin(address) == client


def test_failed_logins_from_one_64_count_together() -> None:
    failed = FailedLogins(3)
    for number in range(3):
        failed.failed(f"2001:db8::{number:x}", 0)
    assert failed.must_wait("2001:db8::ffff", 1)
    assert not failed.must_wait("2001:db8:0:1::1", 1)
