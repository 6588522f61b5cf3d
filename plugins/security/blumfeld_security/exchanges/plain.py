"""The server's half of PLAIN (RFC 4616): one token with a user name and a password. Pure."""

from __future__ import annotations

from typing import NamedTuple

from blumfeld.client.security.refusals import LoginRefused, Malformed

WRONG = "Authentication failed: Invalid username or password"
"""Kafka's text, the same for an unknown user and a wrong password."""


class PlainLogin(NamedTuple):
    """What a client claims."""

    user: str
    password: str

    def __repr__(self) -> str:
        return f"PlainLogin(user={self.user!r}, password=[hidden])"


def read_plain_token(token: bytes) -> PlainLogin:
    """Returns the user and password in a client's token.

    The authorization id is empty or the user itself, as in Kafka: no client acts for another user.

    :raises LoginRefused: the token is malformed, has an empty part, or names another user
    """
    count = token.count(0) + 1  # counted before anything is split: a client may send half a million of them
    if count != 3:
        told = f"Invalid SASL/PLAIN response: expected 3 tokens, got {count}"
        raise Malformed(f"the token of PLAIN has {count} parts in place of 3", told)
    try:
        authorization_id, user, password = token.decode().split("\0")
    except UnicodeDecodeError:
        raise Malformed("the token of PLAIN is not UTF-8") from None
    for what, value in (("username", user), ("password", password)):
        if not value:
            raise Malformed(f"the {what} is empty", f"Authentication failed: {what} not specified")
    if authorization_id not in ("", user):
        told = "Authentication failed: Client requested an authorization id that is different from username"
        raise LoginRefused(f"user {user!r} asked to act as {authorization_id!r}", told)
    return PlainLogin(user, password)
