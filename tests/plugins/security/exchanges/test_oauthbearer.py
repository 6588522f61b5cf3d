"""OAUTHBEARER's message (RFC 7628), as Kafka reads it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blumfeld.client.security.refusals import LoginRefused, Malformed
from blumfeld.client.security.sasl import bearer_message
from blumfeld_security.exchanges.oauthbearer import error_message, read_bearer_message


def test_a_message_has_its_token_and_extensions() -> None:
    login = read_bearer_message(b"n,a=al=2Cice,\x01auth=bEaReR abc.def.ghi=\x01logicalCluster=lkc 1\x01\x01")
    assert login.authorization_id == "al,ice"
    assert login.token == "abc.def.ghi="
    assert login.extensions == {"logicalCluster": "lkc 1"}
    assert "abc" not in repr(login)


def test_both_sides_agree() -> None:
    assert bearer_message("abc") == b"n,,\x01auth=Bearer abc\x01\x01"
    assert read_bearer_message(bearer_message("abc", {"traceId": "7"})) == ("", "abc", {"traceId": "7"})


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer abc\x01",
        b"n,,\x01auth=Basic abc\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Bearer abc\x01auth=Bearer def\x01\x01",
        b"n,,\x01host=x\x01\x01",
        b"n,,\x01auth=Bearer abc\x011x=y\x01\x01",
        b"n,,\x01auth=Bearer abc\x01x=\x01\x01",
        b"n,a,\x01auth=Bearer abc\x01\x01",
        b"n,a=x=y,\x01auth=Bearer abc\x01\x01",
        b"p=tls-unique,,\x01auth=Bearer abc\x01\x01",
        b"n,,\x01auth=Bearer \xff\x01\x01",
        b"n,,\x01auth=Bearer abc\x01" + b"x=y\x01" * 100 + b"\x01",
    ],
)
def test_a_malformed_message_is_refused(message: bytes) -> None:
    with pytest.raises(Malformed):
        read_bearer_message(message)


@given(st.binary() | st.binary().map(lambda noise: bearer_message("abc").replace(b"abc", noise)))
def test_any_bytes_are_a_token_or_refused(message: bytes) -> None:
    try:
        login = read_bearer_message(message)
    except LoginRefused:
        return
    assert login.token


def test_an_error_is_kafkas_json() -> None:
    assert error_message("invalid_token") == b'{"status":"invalid_token"}'
    assert error_message("insufficient_scope", "produce", "https://a/b") == (
        b'{"status":"insufficient_scope","scope":"produce","openid-configuration":"https://a/b"}'
    )
