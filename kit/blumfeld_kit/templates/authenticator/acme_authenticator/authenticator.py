"""The exchange of PLAIN (RFC 4616): one token, with the user and the password."""

from __future__ import annotations

from blumfeld.spi.completion import Completion
from blumfeld.spi.context import Principal
from blumfeld.spi.runtime import Runtime
from blumfeld.spi.security import Stepped
from blumfeld.wire.errors import BrokerError, ErrorCode

from .users import Users

REFUSED = "Authentication failed: Invalid username or password"


class AcmeAuthenticator:
    """``Authenticator``: one exchange on one connection."""

    def __init__(self, runtime: Runtime, users: Users) -> None:
        self._runtime = runtime
        self._users = users

    def step(self, token: bytes) -> Completion[Stepped]:
        """Take the client's token. A worker looks at the password, so that the broker's loop goes on."""
        user, password = _read(token)
        done: Completion[Stepped] = Completion()
        self._runtime.spawn(self._check(user, password, done), "acme_authenticator")
        return done

    async def _check(self, user: str, password: str, done: Completion[Stepped]) -> None:
        if await self._runtime.offload(self._users.has, user, password):
            done.complete(Stepped(reply=b"", principal=Principal(user)))
        else:
            done.fail(_refusal())


def _read(token: bytes) -> tuple[str, str]:
    """Return user and password.

    :raises BrokerError: the token has another form
    """
    if token.count(0) != 2:
        raise _refusal()
    try:
        acts_as, user, password = token.decode().split("\0")
    except UnicodeDecodeError:
        raise _refusal() from None
    if acts_as not in ("", user):
        raise _refusal()
    return user, password


def _refusal() -> BrokerError:
    return BrokerError(ErrorCode.SASL_AUTHENTICATION_FAILED, REFUSED)
