"""The contract of an authorizer, as tests: subclass :class:`AuthorizerContract` and give it yours.

.. code-block:: python

    class TestMyAuthorizer(AuthorizerContract):
        def make_authorizer(self):
            return MyAuthorizer()

        def allow(self, authorizer, principal, operation, resource_type, name):
            authorizer.rules.add((str(principal), operation, resource_type, name))
            authorizer.generation += 1

        def revoke(self, authorizer, principal, operation, resource_type, name):
            authorizer.rules.discard((str(principal), operation, resource_type, name))
            authorizer.generation += 1
"""

from __future__ import annotations

import time
from typing import Any

import pytest

from blumfeld.spi.context import Principal
from blumfeld.spi.security import Authorizer
from blumfeld.wire.acl_operations import OPERATIONS

ALICE = Principal("alice-of-the-contract")
BOB = Principal("bob-of-the-contract")
HOST = "10.0.0.7"
READ = ("Read", "Topic", "ticks")
RESOURCES = ("Topic", "Group", "Cluster", "TransactionalId", "DelegationToken", "User")
NAMES = ("", "*", "a" * 32_767, "é\u202e\n\x00", "kafka-cluster")
QUESTIONS = 2_000
QUESTION_MS_MAX = 0.5
"""CPU time of one question. A broker asks several a request, on its only thread."""


class AuthorizerContract:
    """The contract of ``blumfeld.spi.security.Authorizer`` as tests."""

    def make_authorizer(self) -> Authorizer:
        """Your authorizer, by which nobody in this contract may do anything yet."""
        raise NotImplementedError("override make_authorizer")

    def allow(
        self, authorizer: Any, principal: Principal, operation: str, resource_type: str, name: str
    ) -> None:
        """Let the principal do it, from every host."""
        raise NotImplementedError("override allow")

    def revoke(
        self, authorizer: Any, principal: Principal, operation: str, resource_type: str, name: str
    ) -> None:
        """Take that right away again."""
        raise NotImplementedError("override revoke")

    @pytest.fixture
    def authorizer(self) -> Authorizer:
        """Your authorizer."""
        return self.make_authorizer()

    def test_nobody_may_do_what_nothing_allows(self, authorizer: Authorizer) -> None:
        """Each question has an answer, also one with a name that no client should send: it is False, and no error."""
        for operation in OPERATIONS:
            for resource_type in RESOURCES:
                for name in NAMES:
                    assert authorizer.authorize(ALICE, HOST, operation, resource_type, name) is False
                assert authorizer.authorize_any(ALICE, HOST, operation, resource_type) is False

    def test_a_right_is_one_principals_on_one_resource(self, authorizer: Authorizer) -> None:
        """What allows one says nothing of another principal, another name, another type or another operation."""
        self.allow(authorizer, ALICE, *READ)
        assert authorizer.authorize(ALICE, HOST, *READ) is True
        assert authorizer.authorize(BOB, HOST, *READ) is False
        assert authorizer.authorize(ALICE, HOST, "Read", "Topic", "ticks2") is False
        assert authorizer.authorize(ALICE, HOST, "Read", "Group", "ticks") is False
        assert authorizer.authorize(ALICE, HOST, "Write", "Topic", "ticks") is False

    def test_a_change_is_another_generation(self, authorizer: Authorizer) -> None:
        """The broker remembers what was allowed until :attr:`generation` changes: a right that is revoked in the same
        generation would go on."""
        before = authorizer.generation
        self.allow(authorizer, ALICE, *READ)
        allowed = authorizer.generation
        assert allowed != before
        self.revoke(authorizer, ALICE, *READ)
        assert authorizer.generation not in (before, allowed)
        assert authorizer.authorize(ALICE, HOST, *READ) is False

    def test_a_question_changes_nothing(self, authorizer: Authorizer) -> None:
        """Questions leave the generation as it is: otherwise nothing could be remembered."""
        self.allow(authorizer, ALICE, *READ)
        generation = authorizer.generation
        for principal in (ALICE, BOB):
            authorizer.authorize(principal, HOST, *READ)
            authorizer.authorize_any(principal, HOST, "Read", "Topic")
        assert authorizer.generation == generation

    def test_a_quiet_question_has_the_same_answer(self, authorizer: Authorizer) -> None:
        """``quiet`` is for an audit alone."""
        self.allow(authorizer, ALICE, *READ)
        for principal in (ALICE, BOB):
            loud = authorizer.authorize(principal, HOST, *READ)
            assert authorizer.authorize(principal, HOST, *READ, quiet=True) is loud

    def test_a_token_is_no_other_principal(self, authorizer: Authorizer) -> None:
        """A client that a delegation token logged in has the rights of its principal."""
        self.allow(authorizer, ALICE, *READ)
        by_token = Principal(ALICE.name, ALICE.type, token_authenticated=True)
        assert authorizer.authorize(by_token, HOST, *READ) is True

    def test_any_is_true_for_a_right_on_some_resource(self, authorizer: Authorizer) -> None:
        """An idempotent producer needs Write on any topic (KIP-679)."""
        self.allow(authorizer, ALICE, "Write", "Topic", "ticks")
        assert authorizer.authorize_any(ALICE, HOST, "Write", "Topic") is True
        assert authorizer.authorize_any(BOB, HOST, "Write", "Topic") is False
        assert authorizer.authorize_any(ALICE, HOST, "Write", "Group") is False

    def test_a_question_holds_nobody_up(self, authorizer: Authorizer) -> None:
        """Many questions take little time each: all clients wait meanwhile."""
        started = time.process_time()
        for number in range(QUESTIONS):
            authorizer.authorize(ALICE, HOST, "Read", "Topic", f"topic-{number}")
        assert (time.process_time() - started) * 1000 / QUESTIONS < QUESTION_MS_MAX
