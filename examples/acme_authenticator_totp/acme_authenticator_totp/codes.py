"""Codes that change every 30 seconds (RFC 6238), and the exchange of PLAIN that takes them."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping

from blumfeld.spi.context import Principal
from blumfeld.spi.security import Stepped
from blumfeld.wire.errors import BrokerError, ErrorCode

PERIOD_MS = 30_000
DIGITS = 6
NOBODY = bytes(20)
"""The secret that an unknown user's code is compared with: such a login costs what any other costs."""
REFUSED = "Authentication failed: Invalid username or code"


def code(secret: bytes, counter: int) -> str:
    """Returns the code of one period."""
    digest = hmac.digest(secret, counter.to_bytes(8, "big"), "sha1")
    at = digest[-1] & 0x0F
    number = int.from_bytes(digest[at : at + 4], "big") & 0x7FFF_FFFF
    return f"{number % 10**DIGITS:0{DIGITS}}"


class TotpAuthenticator:
    """One exchange.

    :param secrets: user → secret
    :param now_ms: returns the wall time
    :param windows: codes before and after the present one that are taken, too
    """

    def __init__(self, secrets: Mapping[str, bytes], now_ms: Callable[[], int], windows: int) -> None:
        self._secrets = secrets
        self._now_ms = now_ms
        self._windows = windows

    def step(self, token: bytes) -> Stepped:
        """Take the only token of PLAIN: an authorization id, the user, the code."""
        acts_as, user, given = _read(token)
        counter = self._now_ms() // PERIOD_MS
        secret = self._secrets.get(user, NOBODY)
        right = False
        for each in range(counter - self._windows, counter + self._windows + 1):
            right |= hmac.compare_digest(code(secret, max(each, 0)), given)
        if not right or user not in self._secrets or acts_as not in ("", user):
            raise _refused()
        return Stepped(reply=b"", principal=Principal(user))


def _read(token: bytes) -> tuple[str, str, str]:
    if token.count(0) != 2:  # counted before it is split: a stranger may send half a million of them
        raise _refused()
    try:
        acts_as, user, given = token.decode().split("\0")
    except UnicodeDecodeError:
        raise _refused() from None
    if not given.isascii():  # compare_digest takes no other texts
        raise _refused()
    return acts_as, user, given


def _refused() -> BrokerError:
    return BrokerError(ErrorCode.SASL_AUTHENTICATION_FAILED, REFUSED)
