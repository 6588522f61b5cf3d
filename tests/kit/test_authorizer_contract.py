"""The contract of authorizers: a right one passes it, and each of some wrong ones fails it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from blumfeld.spi.context import Principal
from blumfeld.wire.acl_operations import OPERATIONS
from blumfeld_kit.authorizer_contract import AuthorizerContract
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_security.acls.authorizer import AclAuthorizer
from blumfeld_security.acls.rules import ALLOW, LITERAL, RESOURCE_TYPES, Acl, Acls, StandardRules


class Table:
    """``Authorizer``: a set of rights."""

    def __init__(self) -> None:
        self.generation = 0
        self.rights: set[tuple[str, str, str, str]] = set()

    def authorize(
        self,
        principal: Principal,
        host: str,
        operation: str,
        resource_type: str,
        name: str,
        *,
        quiet: bool = False,
    ) -> bool:
        return (str(principal), operation, resource_type, name) in self.rights

    def authorize_any(self, principal: Principal, host: str, operation: str, resource_type: str) -> bool:
        return any(right[:3] == (str(principal), operation, resource_type) for right in self.rights)


class TestTable(AuthorizerContract):
    def make_authorizer(self) -> Any:
        return Table()

    def allow(self, authorizer: Any, principal: Principal, *right: str) -> None:
        authorizer.rights.add((str(principal), *right))
        authorizer.generation += 1

    def revoke(self, authorizer: Any, principal: Principal, *right: str) -> None:
        authorizer.rights.discard((str(principal), *right))
        authorizer.generation += 1


class TestAcls(AuthorizerContract):
    """The security plug-in's own."""

    def make_authorizer(self) -> Any:
        trail: Any = SimpleNamespace(verdict=lambda *_: None)
        authorizer = AclAuthorizer(StandardRules(), trail, FakeRuntime().scheduler)
        self._set(authorizer, Acls())
        return authorizer

    @staticmethod
    def _set(authorizer: Any, acls: Acls) -> None:
        image = SimpleNamespace(section=lambda _: acls)
        authorizer._step(image, SimpleNamespace(first=True, section_records={}))

    @staticmethod
    def _acl(principal: Principal, operation: str, resource_type: str, name: str) -> Acl:
        kind = RESOURCE_TYPES[resource_type]
        return Acl(kind, name, LITERAL, str(principal), "*", OPERATIONS[operation], ALLOW)

    def allow(self, authorizer: Any, principal: Principal, *right: str) -> None:
        self._set(authorizer, authorizer._acls.updated([(b"1" * 16, self._acl(principal, *right))]))

    def revoke(self, authorizer: Any, principal: Principal, *right: str) -> None:
        self._set(authorizer, authorizer._acls.updated([(b"1" * 16, None)]))


class Shared(Table):
    """What one principal may do everybody may do."""

    def authorize(self, principal: Principal, *asked: Any, **how: Any) -> bool:
        return asked[1:] in [right[1:] for right in self.rights]


class Unchanging(Table):
    """Its generation stays."""

    generation = property(lambda _: 0, lambda *_: None)


class Restless(Table):
    """Each question is another generation."""

    def authorize(self, *asked: Any, **how: Any) -> bool:
        self.generation += 1
        return super().authorize(*asked, **how)


class Whispering(Table):
    """A quiet question is always allowed."""

    def authorize(self, *asked: Any, quiet: bool = False) -> bool:
        return quiet or super().authorize(*asked)


class AnyOrNone(Table):
    """Nobody may do anything on some resource."""

    def authorize_any(self, *_: Any) -> bool:
        return False


class Fussy(Table):
    """A name that it doesn't like is an error."""

    def authorize(self, *asked: Any, **how: Any) -> bool:
        if not asked[-1]:
            raise ValueError("no name")
        return super().authorize(*asked, **how)


class ByIdentity(Table):
    """A token's principal is another one."""

    def authorize(self, principal: Principal, *asked: Any, **how: Any) -> bool:
        return not principal.token_authenticated and super().authorize(principal, *asked, **how)


class Slow(Table):
    """It scans."""

    def authorize(self, *asked: Any, **how: Any) -> bool:
        sum(range(100_000))
        return super().authorize(*asked, **how)


@pytest.mark.parametrize(
    ("wrong", "test"),
    [
        (Shared, "a_right_is_one_principals_on_one_resource"),
        (Unchanging, "a_change_is_another_generation"),
        (Restless, "a_question_changes_nothing"),
        (Whispering, "a_quiet_question_has_the_same_answer"),
        (AnyOrNone, "any_is_true_for_a_right_on_some_resource"),
        (Fussy, "nobody_may_do_what_nothing_allows"),
        (ByIdentity, "a_token_is_no_other_principal"),
        (Slow, "a_question_holds_nobody_up"),
    ],
)
def test_a_wrong_authorizer_fails_the_contract(wrong: type[Table], test: str) -> None:
    with pytest.raises((AssertionError, ValueError)):
        getattr(TestTable(), f"test_{test}")(wrong())
