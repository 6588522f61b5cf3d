"""The contract of mechanisms: the plug-in's own pass it, and each of some wrong ones fails it."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

pytest.importorskip("joserfc")

from joserfc import jwt
from joserfc.jwk import ECKey

from blumfeld.client.security.sasl import BEARER_ERROR_READ, bearer_message
from blumfeld.client.security.scram import SHA_256, SHA_512, ScramClient, ScramMechanism
from blumfeld.config.values import BrokerConfig
from blumfeld.spi.completion import Completion
from blumfeld.spi.context import Principal
from blumfeld.spi.security import Mechanisms, Stepped
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld_kit.authenticator_contract import AuthenticatorContract, Client
from blumfeld_kit.fakes.runtime import EPOCH_MS, FakeRuntime
from blumfeld_security.exchanges.passwords import PasswordHash
from blumfeld_security.exchanges.scram import credential_of
from blumfeld_security.options import Options
from blumfeld_security.sasl.node_sasl import NodeSasl
from blumfeld_security.scram.credentials import SECTION, Credentials
from tests.broker.harness import Quiet

SALT = b"sixteen bytes..."
ITERATIONS = 4_096


class Own(AuthenticatorContract):
    """The security plug-in's own mechanisms, with a file of users and credentials of SCRAM."""

    config: ClassVar[dict[str, Any]] = {}

    def make_mechanisms(self, runtime: FakeRuntime) -> Mechanisms:
        digest = hashlib.scrypt(self.password.encode(), salt=SALT, n=1 << 10, r=8, p=1, dklen=32)
        line = f"{self.user} = '{PasswordHash(10, 8, 1, SALT, digest)}'"
        runtime.files.write_atomically("users.toml", f"[users]\n{line}\n".encode())
        sections = {SECTION: self._credentials()}
        image = SimpleNamespace(
            features={"metadata.version": 25}, section=lambda name: sections.get(name, {})
        )
        config = {"sasl.enabled.mechanisms": ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"], **self.config}
        listener = SimpleNamespace(name="SASL", security_protocol="SASL_SSL")
        composition: Any = SimpleNamespace(
            runtime=runtime,
            config=BrokerConfig(config, abilities=frozenset({"secures"})),
            listeners=(listener,),
            authenticators={},
            metadata=SimpleNamespace(image=image),
            data_dir="/data",
            log=lambda _: Quiet(),
        )
        sasl = NodeSasl(composition, Options(plain_users="users.toml"))
        runtime.run(sasl.start())
        return {name: sasl._maker(name) for name in config["sasl.enabled.mechanisms"]}

    def _credentials(self) -> Credentials:
        made = {}
        for mechanism in (SHA_256, SHA_512):
            salted = mechanism.salted_password(self.password, SALT, ITERATIONS)
            made[self.user, mechanism.number] = credential_of(mechanism, salted, SALT, ITERATIONS)
        return Credentials(made)


class TestPlain(Own):
    mechanism = "PLAIN"

    def client(self, runtime: FakeRuntime, user: str, password: str) -> Client:
        yield f"\0{user}\0{password}".encode()


def scram(mechanism: ScramMechanism, user: str, password: str) -> Client:
    client = ScramClient(mechanism, user, "nonce-of-the-client")
    challenge = client.read((yield client.first()))
    salted = mechanism.salted_password(password, challenge.salt, challenge.iterations)
    client.verify((yield client.proof(challenge, salted)))


class TestScram256(Own):
    mechanism = "SCRAM-SHA-256"

    def client(self, runtime: FakeRuntime, user: str, password: str) -> Client:
        return scram(SHA_256, user, password)


class TestScram512(Own):
    mechanism = "SCRAM-SHA-512"

    def client(self, runtime: FakeRuntime, user: str, password: str) -> Client:
        return scram(SHA_512, user, password)


NOW_S = EPOCH_MS // 1000
ISSUER_KEY, FORGER_KEY = (ECKey.generate_key("P-256", {"kid": "one", "alg": "ES256"}) for _ in range(2))


def bearer_token(key: ECKey, ends_s: int) -> str:
    claims = {"sub": "alice", "iat": NOW_S, "exp": ends_s, "aud": "kafka"}
    token: str = jwt.encode({"alg": "ES256", "kid": "one"}, claims, key)
    return token


class TestOauthbearer(Own):
    """A token names its user, so there is no unknown user; a forged one is told so before it is refused."""

    mechanism = "OAUTHBEARER"
    password = bearer_token(ISSUER_KEY, NOW_S + 600)
    wrong = bearer_token(FORGER_KEY, NOW_S + 600)
    names_users = False
    garbage = (
        bearer_message("a" * 200_000),
        bearer_message("a." * 100_000),
        bearer_message(f"{'e' * 65_000}.."),
        bearer_message(f"{password.partition('.')[0]}..{'A' * 60_000}"),
        bearer_message(password, {"x": "y" * 200_000})[:-1],
        bearer_message(password).replace(b"n,,", b"n,a=mallory,"),
    )
    config: ClassVar[dict[str, Any]] = {
        "sasl.enabled.mechanisms": ["OAUTHBEARER"],
        "sasl.oauthbearer.jwks.endpoint.url": "file:///keys.json",
        "sasl.oauthbearer.expected.audience": ["kafka"],
    }

    def make_mechanisms(self, runtime: FakeRuntime) -> Mechanisms:
        keys = [ISSUER_KEY.as_dict(private=False)]
        runtime.files.write_atomically("/keys.json", json.dumps({"keys": keys}).encode())
        return super().make_mechanisms(runtime)

    def client(self, runtime: FakeRuntime, user: str, password: str) -> Client:
        if (yield bearer_message(password)):
            yield BEARER_ERROR_READ


class TestOauthbearerThatHasEnded(TestOauthbearer):
    wrong = bearer_token(ISSUER_KEY, NOW_S - 60)


class Tags(AuthenticatorContract):
    """A mechanism with one token, a name and a tag, and ways to get it wrong."""

    mechanism = "TAG"

    def client(self, runtime: FakeRuntime, user: str, password: str) -> Client:
        yield f"{user}:{password}".encode()

    def make_mechanisms(self, runtime: FakeRuntime) -> Mechanisms:
        return {"TAG": lambda *_: SimpleNamespace(step=self.step(runtime))}

    def step(self, runtime: FakeRuntime) -> Any:
        def step(token: bytes) -> Stepped:
            user, _, tag = token.decode("utf-8", "replace").partition(":")
            if user != self.user or not hmac.compare_digest(tag.encode(), self.password.encode()):
                raise refused()
            return Stepped(reply=b"", principal=Principal(user))

        return step


class TestTags(Tags):
    """It passes."""


def refused(text: str = "Authentication failed") -> BrokerError:
    return BrokerError(ErrorCode.SASL_AUTHENTICATION_FAILED, text)


class TellsUsers(Tags):
    """Says that there is no such user."""

    def step(self, runtime: FakeRuntime) -> Any:
        right = super().step(runtime)

        def step(token: bytes) -> Stepped:
            if not token.startswith(self.user.encode()):
                raise refused("no such user")
            return right(token)  # type: ignore[no-any-return]

        return step


class Quick(Tags):
    """Hashes only for users that there are."""

    def step(self, runtime: FakeRuntime) -> Any:
        right = super().step(runtime)

        def step(token: bytes) -> Any:
            if not token.startswith(self.user.encode()):
                raise refused()
            stepped: Completion[Stepped] = Completion()

            async def hash_it() -> None:
                await runtime.offload(lambda: None)
                try:
                    stepped.complete(right(token))
                except BrokerError as error:
                    stepped.fail(error)

            runtime.spawn(hash_it(), "hash")
            return stepped

        return step


class Talks(Tags):
    """Repeats what it was sent."""

    def step(self, runtime: FakeRuntime) -> Any:
        right = super().step(runtime)

        def step(token: bytes) -> Stepped:
            try:
                return right(token)  # type: ignore[no-any-return]
            except BrokerError:
                raise refused(f"wrong: {token!r}") from None

        return step


class Breaks(Tags):
    """Takes every token for UTF-8."""

    def step(self, runtime: FakeRuntime) -> Any:
        right = super().step(runtime)

        def step(token: bytes) -> Stepped:
            token.decode()
            return right(token)  # type: ignore[no-any-return]

        return step


class Trusts(Tags):
    """Lets everybody in."""

    def step(self, runtime: FakeRuntime) -> Any:
        return lambda _: Stepped(reply=b"", principal=Principal(self.user))


class Remembers(Tags):
    """Lets everybody in behind the first right login."""

    def __init__(self) -> None:
        self.known: list[Stepped] = []

    def step(self, runtime: FakeRuntime) -> Any:
        right = super().step(runtime)

        def step(token: bytes) -> Stepped:
            if not self.known:
                self.known.append(right(token))
            return self.known[0]

        return step


class Slow(Tags):
    """Hashes on the loop."""

    def step(self, runtime: FakeRuntime) -> Any:
        right = super().step(runtime)

        def step(token: bytes) -> Stepped:
            until = time.process_time() + 0.025
            while time.process_time() < until:
                pass
            return right(token)  # type: ignore[no-any-return]

        return step


class SlowBehind(Slow):
    """Hashes on the loop, in a task that the step waits for."""

    def step(self, runtime: FakeRuntime) -> Any:
        right = super().step(runtime)

        def step(token: bytes) -> Completion[Stepped]:
            stepped: Completion[Stepped] = Completion()

            async def hash_it() -> None:
                try:
                    stepped.complete(right(token))
                except BrokerError as error:
                    stepped.fail(error)

            runtime.spawn(hash_it(), "hash")
            return stepped

        return step


class TalksBefore(Tags):
    """Repeats what it was sent in a message before the refusal."""

    def step(self, runtime: FakeRuntime) -> Any:
        right = super().step(runtime)

        def step(token: bytes) -> Stepped:
            if token == BEARER_ERROR_READ:
                raise refused()
            try:
                return right(token)  # type: ignore[no-any-return]
            except BrokerError:
                return Stepped(reply=b"no", refused=f"wrong: {token!r}")

        return step

    def client(self, runtime: FakeRuntime, user: str, password: str) -> Client:
        if (yield f"{user}:{password}".encode()):
            yield BEARER_ERROR_READ


@pytest.mark.parametrize(
    ("wrong", "test"),
    [
        (TellsUsers, "test_a_refusal_tells_no_wrong_password_from_an_unknown_user"),
        (Quick, "test_a_refusal_tells_no_wrong_password_from_an_unknown_user"),
        (Talks, "test_no_secret_is_in_an_error"),
        (TalksBefore, "test_no_secret_is_in_an_error"),
        (Trusts, "test_a_wrong_password_is_refused"),
    ],
)
def test_a_wrong_mechanism_fails_it(wrong: type[Tags], test: str) -> None:
    with pytest.raises(AssertionError):
        getattr(wrong(), test)()


GARBAGE_TEST = "test_garbage_is_refused_and_no_error_but_a_refusal_rises"


@pytest.mark.parametrize(
    ("wrong", "test", "error"),
    [
        (Breaks, GARBAGE_TEST, UnicodeDecodeError),
        (Trusts, GARBAGE_TEST, AssertionError),
        (Remembers, "test_exchanges_of_two_connections_say_nothing_of_each_other", AssertionError),
        (Slow, "test_a_step_holds_nobody_up", AssertionError),
        (SlowBehind, "test_a_step_holds_nobody_up", AssertionError),
    ],
)
def test_a_mechanism_that_is_wrong_in_more_than_one_login_fails_it(
    wrong: type[Tags], test: str, error: type[Exception]
) -> None:
    runtime = FakeRuntime()
    made = wrong()
    with pytest.raises(error):
        getattr(made, test)(runtime, made.make_mechanisms(runtime))
