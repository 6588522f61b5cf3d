"""The mechanisms as the gate drives them: one authenticator for one exchange."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from blumfeld.client.security.refusals import LoginRefused, Malformed
from blumfeld.client.security.scram import ITERATIONS_MIN, ScramMechanism
from blumfeld.spi.completion import Completion
from blumfeld.spi.context import Principal
from blumfeld.spi.security import Stepped
from blumfeld_security.exchanges import oauthbearer
from blumfeld_security.exchanges.plain import PlainLogin, read_plain_token
from blumfeld_security.exchanges.scram import ClientFirst, Credential, ScramServer


class PlainAuthenticator:
    """PLAIN.

    :param verify: completes if the password is right, or fails with ``LoginRefused``
    """

    def __init__(self, verify: Callable[[PlainLogin], Completion[None]]) -> None:
        self._verify = verify

    def step(self, token: bytes) -> Completion[Stepped]:
        """As ``spi.security.Authenticator.step``."""
        login = read_plain_token(token)
        stepped: Completion[Stepped] = Completion()

        def verified(done: Completion[None]) -> None:
            if done.error is not None:
                stepped.fail(done.error)
            else:
                stepped.complete(Stepped(reply=b"", principal=Principal(login.user)))

        self._verify(login).when_done(verified)
        return stepped


class ScramUser(NamedTuple):
    """A user of SCRAM."""

    credential: Credential
    """The user's, or a made up one."""
    principal: Principal | None
    """``None``: there is no such user."""
    left_ms: Callable[[], float] | None = None
    """Returns the time until a delegation token ends, as of now: it may be taken back within the exchange."""


class ScramAuthenticator:
    """SCRAM, with passwords and with delegation tokens.

    :param find: returns the user of a first message
    :param nonce: returns characters that nobody can guess
    """

    def __init__(
        self,
        mechanism: ScramMechanism,
        find: Callable[[ClientFirst], ScramUser | Completion[ScramUser]],
        nonce: Callable[[], str],
    ) -> None:
        self._server = ScramServer(mechanism)
        self._find = find
        self._nonce = nonce
        self._user: ScramUser | None = None
        self._name = ""

    def step(self, token: bytes) -> Stepped | Completion[Stepped]:
        """As ``spi.security.Authenticator.step``."""
        user = self._user
        if user is None:
            return self._challenge(self._server.first(token))
        try:
            last = self._server.final(token)
        except LoginRefused as refusal:
            told = refusal.message
            if user.principal is None and not isinstance(refusal, Malformed):
                raise LoginRefused(f"no such user: {self._name!r}", told) from None
            raise LoginRefused(f"{refusal.reason}: user {self._name!r}", told) from None
        if user.principal is None or user.credential.iterations < ITERATIONS_MIN:
            raise LoginRefused(f"no such user: {self._name!r}")
        left_ms = None if user.left_ms is None else user.left_ms()
        if left_ms is not None and left_ms <= 0:
            raise LoginRefused(f"the delegation token has ended: {self._name!r}")
        return Stepped(reply=last, principal=user.principal, lifetime_ms=left_ms)

    def _challenge(self, first: ClientFirst) -> Stepped | Completion[Stepped]:
        self._name = first.user[:60]
        found = self._find(first)
        if isinstance(found, ScramUser):
            return self._challenged(found)
        stepped: Completion[Stepped] = Completion()

        def looked_up(done: Completion[ScramUser]) -> None:
            if done.error is not None:
                stepped.fail(done.error)
            else:
                stepped.complete(self._challenged(done.result()))

        found.when_done(looked_up)
        return stepped

    def _challenged(self, user: ScramUser) -> Stepped:
        self._user = user
        return Stepped(reply=self._server.challenge(user.credential, self._nonce()))


class BearerUser(NamedTuple):
    """The meaning of a bearer token that is valid."""

    principal: Principal
    lifetime_ms: float
    """Time until the token ends."""


class InvalidToken(Exception):  # noqa: N818 - the noun says what it is
    """A bearer token isn't taken. The text says why, without the token."""

    status = "invalid_token"


class InsufficientScope(InvalidToken):
    """A bearer token hasn't the scope that is needed."""

    status = "insufficient_scope"


class BearerAuthenticator:
    """OAUTHBEARER.

    :param verify: completes with the meaning of a token, or fails with ``InvalidToken``
    :param scope: the scope that tokens need, for the error's message
    """

    def __init__(self, verify: Callable[[str], Completion[BearerUser]], scope: str | None = None) -> None:
        self._verify = verify
        self._scope = scope
        self._refusal: LoginRefused | None = None

    def step(self, token: bytes) -> Stepped | Completion[Stepped]:
        """As ``spi.security.Authenticator.step``. An invalid token is answered with the error's message. The client
        replies to it, and is refused then."""
        if self._refusal is not None:
            raise self._refusal
        login = oauthbearer.read_bearer_message(token)
        stepped: Completion[Stepped] = Completion()

        def verified(done: Completion[BearerUser]) -> None:
            if isinstance(done.error, InvalidToken):
                message = oauthbearer.error_message(done.error.status, self._scope)
                self._refusal = LoginRefused(str(done.error), message.decode())
                stepped.complete(Stepped(reply=message, refused=str(done.error)))
            elif done.error is not None:
                stepped.fail(done.error)
            else:
                self._verified(login, done.result(), stepped)

        self._verify(login.token).when_done(verified)
        return stepped

    def _verified(
        self, login: oauthbearer.BearerLogin, user: BearerUser, stepped: Completion[Stepped]
    ) -> None:
        name = user.principal.name
        if login.authorization_id not in ("", name):
            told = (
                f"Authentication failed: Client requested an authorization id ({login.authorization_id}) that is "
                f"different from the token's principal name ({name})"
            )
            stepped.fail(LoginRefused(f"{name!r} asked to act as {login.authorization_id!r}", told))
        else:
            stepped.complete(Stepped(reply=b"", principal=user.principal, lifetime_ms=user.lifetime_ms))
