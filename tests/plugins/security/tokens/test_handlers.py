"""DescribeDelegationToken for any client: it sees its own tokens alone, and holds nobody up."""

from __future__ import annotations

from types import GeneratorType, SimpleNamespace
from typing import Any

import pytest

from blumfeld.spi.context import Principal
from blumfeld.spi.steps import drained
from blumfeld.wire.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from blumfeld_security.tokens.delegation_tokens import Token, TokenSettings
from blumfeld_security.tokens.handlers import token_handlers

ALICE, BOB = Principal("alice"), Principal("bob")


class Compared(Principal, frozen=True):
    """Counts how often it is held against another principal."""

    times = 0

    def __eq__(self, other: object) -> bool:
        Compared.times += 1
        return super().__eq__(other)

    def __hash__(self) -> int:
        return super().__hash__()


def describe(
    tokens: dict[str, Token],
    owners: list[str] | None,
    *,
    is_large: bool = False,
    rights: tuple[tuple[str, str, str], ...] = (),
) -> Any:
    metadata: Any = SimpleNamespace(image=SimpleNamespace(section=lambda _: tokens))
    context: Any = SimpleNamespace(
        listener=SimpleNamespace(security_protocol="SASL_SSL", kind="broker"),
        principal=ALICE,
        is_large=is_large,
        authorize=lambda *asked: asked in rights,
    )
    named = None
    if owners is not None:
        named = [DescribeDelegationTokenOwner(principal_type="User", principal_name=name) for name in owners]
    [handler] = [h for h in token_handlers(metadata, 1, TokenSettings(secret_key=b"k")) if h.key == 41]
    return handler.handle(DescribeDelegationTokenRequest(owners=named), context)


def tokens_of(owner: Principal, count: int) -> dict[str, Token]:
    return {f"id-{n}": Token(f"id-{n}", owner, owner, (), 0, 1 << 60, 1 << 60) for n in range(count)}


def test_a_client_sees_its_own_tokens_of_the_owners_that_it_names() -> None:
    tokens = tokens_of(ALICE, 2) | {"id-b": tokens_of(BOB, 1)["id-0"]}
    assert len(describe(tokens, None).tokens) == 2
    assert len(describe(tokens, ["alice"]).tokens) == 2
    assert not describe(tokens, ["bob"]).tokens
    assert not describe(tokens, []).tokens


@pytest.mark.parametrize(
    ("right", "seen"),
    [
        (("Describe", "DelegationToken", "id-0"), ["id-0"]),
        (("DescribeTokens", "User", "User:bob"), ["id-0", "id-1"]),
        (("DescribeTokens", "User", "User:carol"), []),
    ],
)
def test_a_right_on_a_token_or_on_its_owner_shows_it(right: tuple[str, str, str], seen: list[str]) -> None:
    answer = describe(tokens_of(BOB, 2), None, rights=(right,))
    assert [token.token_id for token in answer.tokens] == seen


def test_the_owners_that_a_client_names_are_not_held_against_every_token() -> None:
    """A million owners in one frame and a hundred tokens would hold the loop for seconds."""
    Compared.times = 0
    owners = [f"user-{number}" for number in range(1_000)]
    asked = describe(tokens_of(Compared("alice"), 100), owners, is_large=True)
    assert not (drained(asked) if isinstance(asked, GeneratorType) else asked).tokens
    assert Compared.times < 1_000


def test_many_tokens_are_looked_at_in_steps() -> None:
    steps = describe(tokens_of(ALICE, 1_000), None)
    assert isinstance(steps, GeneratorType)
    assert sum(1 for _ in steps) >= 7
