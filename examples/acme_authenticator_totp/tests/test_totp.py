"""The contract of a mechanism, on codes that change; and the codes of RFC 6238."""

from __future__ import annotations

from collections.abc import Generator

import pytest
from acme_authenticator_totp.codes import PERIOD_MS, TotpAuthenticator, code
from acme_authenticator_totp.plugin import read_secrets

from blumfeld.spi.secret_files import BadSecretFile
from blumfeld.spi.security import Mechanisms
from blumfeld.wire.errors import BrokerError
from blumfeld_kit import AuthenticatorContract
from blumfeld_kit.fakes import FakeRuntime

SECRET = b"12345678901234567890"


class TestTotp(AuthenticatorContract):
    """All that every mechanism must hold. The password of the kit stands for the secret that makes codes."""

    mechanism = "PLAIN"
    password, wrong = "a secret of the user", "a secret of somebody"

    def make_mechanisms(self, runtime: FakeRuntime) -> Mechanisms:
        """One user."""
        secrets = {self.user: self.password.encode()}
        return {"PLAIN": lambda *_: TotpAuthenticator(secrets, runtime.now_ms, 1)}

    def client(self, runtime: FakeRuntime, user: str, password: str) -> Generator[bytes, bytes, None]:
        """Yields the message of a user: the name, and the code that an authenticator app shows now."""
        yield f"\0{user}\0{code(password.encode(), runtime.now_ms() // PERIOD_MS)}".encode()


@pytest.mark.parametrize(
    ("seconds", "expected"), [(59, "287082"), (1_111_111_109, "081804"), (20_000_000_000, "353130")]
)
def test_codes_are_those_of_the_rfc(seconds: int, expected: str) -> None:
    assert code(SECRET, seconds // 30) == expected


@pytest.mark.parametrize(("late_ms", "taken"), [(0, True), (PERIOD_MS, True), (2 * PERIOD_MS, False)])
def test_a_code_is_taken_for_a_while(late_ms: int, taken: bool) -> None:
    now_ms = 1_700_000_010_000
    token = f"\0alice\0{code(SECRET, now_ms // PERIOD_MS)}".encode()
    authenticator = TotpAuthenticator({"alice": SECRET}, lambda: now_ms + late_ms, 1)
    if taken:
        assert authenticator.step(token).principal is not None
    else:
        with pytest.raises(BrokerError):
            authenticator.step(token)


@pytest.mark.parametrize(
    "text", [b"", b"secrets = 1", b"[secrets]\nalice = 7", b"[secrets]\nalice = 'hunter2!'"]
)
def test_a_file_of_another_form_is_refused_without_its_content(text: bytes) -> None:
    files = FakeRuntime().files
    files.write_atomically("codes.toml", text)
    with pytest.raises(BadSecretFile) as refused:
        read_secrets(files, "codes.toml")
    assert "hunter2" not in str(refused.value)
