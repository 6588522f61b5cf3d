"""The keys that name the quorum: each entry has one form, and no two are one voter."""

from __future__ import annotations

import pytest

from blumfeld.config.definitions import ConfigError
from blumfeld.config.quorum import VoterAddress, quorum_bootstrap_servers, quorum_voters


def test_voters_in_their_order() -> None:
    assert quorum_voters(["2@b.example:9093", "1@[::1]:19093"]) == (
        VoterAddress(2, "b.example", 9093),
        VoterAddress(1, "::1", 19093),
    )
    assert quorum_voters([]) == ()


@pytest.mark.parametrize(
    "entry",
    [
        "1@h",
        "1@h:x",
        "h:1",
        "@h:1",
        "x@h:1",
        "-1@h:1",
        "1@:9093",
        "1@h:0",
        "1@h:65536",
        "1@::1:9",
        "",
        "٣@h:1",
    ],
)
def test_an_entry_of_another_form_is_refused(entry: str) -> None:
    with pytest.raises(ConfigError, match="ID@HOST:PORT") as caught:
        quorum_voters(["7@h:7", entry])
    assert caught.value.found == entry


def test_an_id_that_no_node_can_have_is_refused() -> None:
    assert quorum_voters([f"{2**31 - 1}@h:1"])
    with pytest.raises(ConfigError, match="ID@HOST:PORT"):
        quorum_voters([f"{2**31}@h:1"])


def test_two_voters_with_one_id_or_one_address_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"1@h:2, and voter 1 before it.*each id once"):
        quorum_voters(["1@h:1", "1@h:2"])
    with pytest.raises(ConfigError, match="2@h:1, the address of voter 1 before it"):
        quorum_voters(["1@h:1", "2@h:1"])
    assert len(quorum_voters(["1@h:1", "2@i:1"])) == 2


def test_bootstrap_servers() -> None:
    assert quorum_bootstrap_servers(["a:1", "b:1"]) == (("a", 1), ("b", 1))
    with pytest.raises(ConfigError, match="a:1 twice"):
        quorum_bootstrap_servers(["a:1", "a:1"])
    with pytest.raises(ConfigError, match="HOST:PORT"):
        quorum_bootstrap_servers(["a"])
    with pytest.raises(ConfigError, match="port from 1"):
        quorum_bootstrap_servers(["a:0"])
