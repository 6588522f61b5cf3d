"""The server's half of OAUTHBEARER (RFC 7628): a bearer token in one message. Pure; what a token means is elsewhere."""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from blumfeld.client.security.refusals import Malformed
from blumfeld.client.security.scram import unquoted

_HEADER = re.compile(r"[ny],(?:a=([^,\0]*))?,")
_PAIR = re.compile(r"([A-Za-z]+)=([\x21-\x7e \t\r\n]+)")
_TOKEN = re.compile(r"(?i:bearer) +([A-Za-z0-9._~+/-]+=*)")
_PAIRS_MAX = 64


class BearerLogin(NamedTuple):
    """What a client sends."""

    authorization_id: str
    token: str
    extensions: dict[str, str]

    def __repr__(self) -> str:
        return f"BearerLogin(authorization_id={self.authorization_id!r}, token=[hidden])"


def read_bearer_message(message: bytes) -> BearerLogin:
    """Returns the content of a client's first message.

    :raises Malformed: it is none, or has no bearer token
    """
    try:
        text = message.decode()
    except UnicodeDecodeError:
        raise Malformed("the message of OAUTHBEARER is not UTF-8") from None
    header, *pairs = text.split("\x01", _PAIRS_MAX)
    gs2 = _HEADER.fullmatch(header)
    if gs2 is None:
        raise Malformed("the message of OAUTHBEARER doesn't begin with a GS2 header without channel binding")
    if len(pairs) < 3 or pairs[-2:] != ["", ""]:
        raise Malformed("the message of OAUTHBEARER has no pairs, or doesn't end with two %x01")
    read: dict[str, str] = {}
    for pair in pairs[:-2]:
        match = _PAIR.fullmatch(pair)
        if match is None or match[1] in read:
            raise Malformed("the message of OAUTHBEARER has a pair that is illegal or comes twice")
        read[match[1]] = match[2]
    match = _TOKEN.fullmatch(read.pop("auth", ""))
    if match is None:
        raise Malformed("the message of OAUTHBEARER has no bearer token")
    return BearerLogin(unquoted(gs2[1] or ""), match[1], read)


def error_message(status: str, scope: str | None = None, configuration: str | None = None) -> bytes:
    """Returns the server's message about a token that it doesn't take. The client replies with ``ERROR_READ``.

    :param status: ``invalid_token`` or ``insufficient_scope``
    """
    error = {"status": status}
    if scope:
        error["scope"] = scope
    if configuration:
        error["openid-configuration"] = configuration
    return json.dumps(error, separators=(",", ":")).encode()
