"""PLAIN's token (RFC 4616), as Kafka reads it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blumfeld.client.security.refusals import LoginRefused
from blumfeld.client.security.sasl import plain_token
from blumfeld_security.exchanges.plain import PlainLogin, read_plain_token

WORDS = st.text(min_size=1, alphabet=st.characters(exclude_characters="\0", exclude_categories=["Cs"]))


@given(WORDS, WORDS)
def test_user_and_password_come_as_they_were_sent(user: str, password: str) -> None:
    assert read_plain_token(plain_token(user, password)) == PlainLogin(user, password)
    assert read_plain_token(f"{user}\0{user}\0{password}".encode()) == PlainLogin(user, password)


@pytest.mark.parametrize(
    ("token", "told"),
    [
        (b"", "expected 3 tokens, got 1"),
        (b"alice\0secret", "expected 3 tokens, got 2"),
        (b"\0alice\0secret\0", "expected 3 tokens, got 4"),
        (b"\0\0secret", "username not specified"),
        (b"\0alice\0", "password not specified"),
        (b"admin\0alice\0secret", "authorization id that is different from username"),
        (b"\0alice\0\xff", "SASL_AUTHENTICATION_FAILED"),
    ],
)
def test_another_token_is_refused_in_kafkas_words(token: bytes, told: str) -> None:
    with pytest.raises(LoginRefused, match=told) as refused:
        read_plain_token(token)
    assert "secret" not in f"{refused.value} {refused.value.reason} {refused.value!r}"


@given(st.binary())
def test_any_bytes_are_a_login_or_refused(token: bytes) -> None:
    try:
        login = read_plain_token(token)
    except LoginRefused:
        return
    assert login.user
    assert login.password


def test_a_password_is_not_printed() -> None:
    assert "secret" not in repr(read_plain_token(b"\0alice\0secret"))


@pytest.mark.parametrize(("user", "password"), [("", "x"), ("x", ""), ("a\0b", "x"), ("x", "a\0b")])
def test_a_client_makes_no_token_that_reads_otherwise(user: str, password: str) -> None:
    with pytest.raises(ValueError, match="not empty and has no NUL"):
        plain_token(user, password)
