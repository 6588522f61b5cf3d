"""Which credentials count: those of the metadata, and those of formatting until there is any."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from blumfeld.client.security.scram import SHA_256, ScramMechanism
from blumfeld.config.values import BrokerConfig
from blumfeld.spi.completion import Completion
from blumfeld.spi.context import Principal
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_security.exchanges.scram import ClientFirst
from blumfeld_security.options import Options
from blumfeld_security.sasl.authenticators import ScramUser
from blumfeld_security.sasl.hash_workers import WORKERS
from blumfeld_security.sasl.node_sasl import NodeSasl
from blumfeld_security.scram.credentials import SECTION, Credentials
from blumfeld_security.tokens.delegation_tokens import Token, TokenSettings
from tests.broker.harness import Quiet
from tests.plugins.security.sasl.gate_rig import SCRAM_USERS

ADDRESS = "192.0.2.1"
KEYS = {"delegation.token.secret.key": "secret"}


class Node:
    """SASL of a node that was formatted with the credentials of alice and bob."""

    def __init__(self) -> None:
        self.features: dict[str, int] = {}
        self.credentials = Credentials({})
        self.tokens: dict[str, Token] = {}
        self.runtime = FakeRuntime()
        composition: Any = SimpleNamespace(
            runtime=self.runtime,
            config=BrokerConfig(KEYS, abilities=frozenset({"secures"})),
            listeners=(),
            authenticators={},
            metadata=SimpleNamespace(image=self),
            log=lambda _: Quiet(),
        )
        self.sasl = NodeSasl(composition, Options())
        self.sasl._written = SCRAM_USERS

    def section(self, name: str) -> Any:
        return self.credentials if name == SECTION else self.tokens

    def token(self, token_id: str) -> ScramUser:
        first = ClientFirst("n,,", "", "", token_id, "nonce", {"tokenauth": "true"})
        found = self.sasl._scram_user(SHA_256, ADDRESS, first)
        assert isinstance(found, Completion)
        self.runtime.run_turn()
        return found.result()

    def knows(self, user: str) -> bool:
        found = self.sasl._scram_user(SHA_256, ADDRESS, ClientFirst("n,,", "", "", user, "nonce", {}))
        assert isinstance(found, ScramUser)
        return found.principal is not None


def test_the_credentials_of_formatting_count_until_there_is_metadata() -> None:
    assert Node().knows("alice")


def test_a_credential_of_formatting_that_was_deleted_as_the_last_one_logs_nobody_in() -> None:
    node = Node()
    node.features = {"metadata.version": 25}
    assert not node.knows("alice")


def test_on_a_zookeeper_without_features_the_credentials_of_the_tree_count() -> None:
    node = Node()
    node.sasl._written, node.credentials = Credentials({}), SCRAM_USERS
    assert node.knows("alice")


def test_a_challenge_does_not_tell_a_known_token_from_an_unknown_one() -> None:
    node, alice = Node(), Principal("alice")
    known = SCRAM_USERS.by_user["alice", SHA_256.number]
    slow = msgspec.structs.replace(known, iterations=8_192)
    node.credentials = Credentials({("alice", SHA_256.number): slow})
    until_ms = node.runtime.now_ms() + 60_000
    node.tokens = {"known": Token("known", alice, alice, (), 0, until_ms, until_ms)}
    found = [node.token(name) for name in ("known", "unknown")]
    assert [user.principal is not None for user in found] == [True, False]
    assert len({(user.credential.iterations, len(user.credential.salt)) for user in found}) == 1


@pytest.mark.parametrize("known", [True, False])
def test_logins_by_tokens_wait_for_the_workers_that_hash_passwords(known: bool) -> None:
    """A frame of a stranger costs a worker milliseconds: more than a few at once would hold up every cold read."""
    node, alice = Node(), Principal("alice")
    if known:
        node.tokens = {"id": Token("id", alice, alice, (), 0, 1 << 60, 1 << 60)}
    working, most = 0, 0
    offload = node.runtime.offload

    def counted(work: Any, *args: Any) -> Any:
        async def run() -> Any:
            nonlocal working, most
            working += 1
            most = max(most, working)
            try:
                return await offload(work, *args)
            finally:
                working -= 1

        return run()

    node.runtime.offload_delay_ms = lambda: 5.0
    node.runtime.offload = counted  # type: ignore[method-assign]
    first = ClientFirst("n,,", "", "", "id", "nonce", {"tokenauth": "true"})
    found = [node.sasl._scram_user(SHA_256, f"192.0.2.{number}", first) for number in range(12)]
    node.runtime.advance(1_000)
    assert [user.result().principal is not None for user in found if isinstance(user, Completion)] == [
        known
    ] * 12
    assert most == WORKERS


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the functions that a login's look-up calls, which take the time of its answer."""
    done: list[str] = []

    def noted(owner: Any, name: str) -> None:
        function = getattr(owner, name)

        def noting(*arguments: Any) -> Any:
            done.append(name)
            return function(*arguments)

        monkeypatch.setattr(owner, name, noting)

    noted(Credentials, "made_up")
    noted(ScramMechanism, "salted_password")
    noted(ScramMechanism, "hmac")
    noted(TokenSettings, "secret_of")
    return done


def test_an_unknown_user_of_scram_costs_the_work_of_a_known_one(work: list[str]) -> None:
    node = Node()
    assert node.knows("alice")
    known = work.copy()
    work.clear()
    assert not node.knows("mallory")
    assert work == known == ["made_up"]


def test_an_unknown_token_costs_the_work_of_a_known_one(work: list[str]) -> None:
    node, alice = Node(), Principal("alice")
    node.tokens = {"known": Token("known", alice, alice, (), 0, 1 << 60, 1 << 60)}
    assert node.token("known").principal is not None
    known = work.copy()
    work.clear()
    assert node.token("unknown").principal is None
    assert work == known == ["made_up", "secret_of", "salted_password", "hmac", "hmac"]
