"""The contract of every mechanism, and what makes this one yours."""

from __future__ import annotations

from collections.abc import Generator

from blumfeld.spi.security import Mechanisms
from blumfeld_kit import AuthenticatorContract
from blumfeld_kit.fakes import FakeRuntime

from acme_authenticator import Users
from acme_authenticator.plugin import mechanisms


class TestAcmeAuthenticator(AuthenticatorContract):
    """All that every mechanism must hold."""

    mechanism = "PLAIN"

    def make_mechanisms(self, runtime: FakeRuntime) -> Mechanisms:
        """Return mechanisms that know the kit's user."""
        return mechanisms(runtime, {self.user: self.password})

    def client(self, runtime: FakeRuntime, user: str, password: str) -> Generator[bytes, bytes, None]:
        """Yield a client's tokens."""
        yield f"\0{user}\0{password}".encode()


def test_no_password_is_kept_as_it_is() -> None:
    """RED UNTIL YOU WRITE IT. Say here where users come from; this asks that passwords are hashed, or elsewhere."""
    assert "a first try" not in str(vars(Users({"alice": "a first try"})))
