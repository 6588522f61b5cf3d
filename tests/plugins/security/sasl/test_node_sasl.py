"""Which credentials count: those of the metadata, and those of formatting until there is any."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from blumfeld.config.values import BrokerConfig
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_security.exchanges.scram import SHA_256, ClientFirst
from blumfeld_security.options import Options
from blumfeld_security.sasl.authenticators import ScramUser
from blumfeld_security.sasl.node_sasl import NodeSasl
from blumfeld_security.scram.credentials import Credentials
from tests.broker.harness import Quiet
from tests.plugins.security.sasl.gate_rig import SCRAM_USERS


class Node:
    """SASL of a node that was formatted with the credentials of alice and bob."""

    def __init__(self) -> None:
        self.features: dict[str, int] = {}
        self.credentials = Credentials({})
        composition: Any = SimpleNamespace(
            runtime=FakeRuntime(),
            config=BrokerConfig({}, abilities=frozenset({"secures"})),
            listeners=(),
            authenticators={},
            metadata=SimpleNamespace(image=self),
            log=lambda _: Quiet(),
        )
        self.sasl = NodeSasl(composition, Options())
        self.sasl._written = SCRAM_USERS

    def section(self, _: str) -> Credentials:
        return self.credentials

    def knows(self, user: str) -> bool:
        found = self.sasl._scram_user(SHA_256, ClientFirst("n,,", "", "", user, "nonce", {}))
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
