"""Delegation tokens: their lives, and which principal may change them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import pytest

from blumfeld.spi.context import Principal
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from blumfeld.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from blumfeld.wire.messages.renew_delegation_token import RenewDelegationTokenRequest
from blumfeld_security.tokens.delegation_tokens import (
    REQUESTER_TOKENS_MAX,
    TOKENS_MAX,
    Token,
    TokenSecrets,
    TokenSection,
    TokenSettings,
    create,
    expire,
    expired,
    renew,
)
from tests.broker.harness import refusal

ALICE, BOB, CAROL, MALLORY = (Principal(name) for name in ("alice", "bob", "carol", "mallory"))
SETTINGS = TokenSettings(secret_key=b"key", max_lifetime_ms=1_000, expiry_ms=400)
SECRETS = TokenSecrets(SETTINGS)
SECTION = TokenSection()


def created(**fields: Any) -> tuple[Mapping[str, Token], Any]:
    renewers = [CreatableRenewers(principal_type="User", principal_name="bob")]
    request = CreateDelegationTokenRequest(**{"renewers": renewers, **fields})
    decided = create({}, request, ALICE, SETTINGS, "id-1", 10_000)
    return SECTION.replay(SECTION.empty(), decided.records), decided.response


def refused(code: ErrorCode) -> AbstractContextManager[None]:
    return refusal(code)


def test_a_token_has_an_owner_an_end_and_a_secret_that_no_record_holds() -> None:
    tokens, response = created()
    assert tokens["id-1"] == Token("id-1", ALICE, ALICE, (BOB,), 10_000, 11_000, 10_400)
    assert (response.issue_timestamp_ms, response.max_timestamp_ms, response.expiry_timestamp_ms) == (
        10_000,
        11_000,
        10_400,
    )
    assert response.hmac == SETTINGS.secret_of("id-1")
    assert len(response.hmac) == 64
    assert response.hmac != TokenSettings(secret_key=b"other").secret_of("id-1")


def test_a_token_for_another_owner_names_both() -> None:
    tokens, response = created(owner_principal_type="User", owner_principal_name="carol")
    assert (tokens["id-1"].owner, tokens["id-1"].requester) == (CAROL, ALICE)
    assert (response.principal_name, response.token_requester_principal_name) == ("carol", "alice")


@pytest.mark.parametrize(("wanted", "end"), [(-1, 11_000), (0, 11_000), (100, 10_100), (9_999, 11_000)])
def test_a_life_is_as_long_as_wanted_and_no_longer_than_allowed(wanted: int, end: int) -> None:
    token = created(max_lifetime_ms=wanted)[0]["id-1"]
    assert token.max_ms == end
    assert token.expires_ms == min(end, 10_400)


def test_only_users_renew() -> None:
    with refused(ErrorCode.INVALID_PRINCIPAL_TYPE):
        created(renewers=[CreatableRenewers(principal_type="Group", principal_name="x")])


def test_without_a_key_there_are_no_tokens() -> None:
    off = TokenSettings(secret_key=b"")
    with refused(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED):
        create({}, CreateDelegationTokenRequest(), ALICE, off, "id", 0)
    with refused(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED):
        renew({}, RenewDelegationTokenRequest(), ALICE, TokenSecrets(off), 0)
    with refused(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED):
        expire({}, ExpireDelegationTokenRequest(), ALICE, TokenSecrets(off), 0)


@pytest.mark.parametrize("principal", [ALICE, BOB])
def test_owner_and_renewers_renew_up_to_its_end(principal: Principal) -> None:
    tokens, response = created()
    for now_ms, period_ms, end in ((10_300, -1, 10_700), (10_650, 50, 10_700), (10_700, 400, 11_000)):
        decided = renew(
            tokens,
            RenewDelegationTokenRequest(hmac=response.hmac, renew_period_ms=period_ms),
            principal,
            SECRETS,
            now_ms,
        )
        assert decided.response.expiry_timestamp_ms == end  # type: ignore[attr-defined]
        tokens = SECTION.replay(tokens, decided.records)
        assert tokens["id-1"].expires_ms == end


def test_others_may_not_renew_or_expire() -> None:
    tokens, response = created()
    with refused(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH):
        renew(tokens, RenewDelegationTokenRequest(hmac=response.hmac), MALLORY, SECRETS, 10_001)
    with refused(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH):
        expire(
            tokens,
            ExpireDelegationTokenRequest(hmac=response.hmac, expiry_time_period_ms=-1),
            MALLORY,
            SECRETS,
            10_001,
        )


def test_a_wrong_secret_names_no_token() -> None:
    tokens, _ = created()
    with refused(ErrorCode.DELEGATION_TOKEN_NOT_FOUND):
        renew(tokens, RenewDelegationTokenRequest(hmac=b"id-1"), ALICE, SECRETS, 10_001)


def test_a_token_that_has_ended_is_not_renewed_and_is_swept() -> None:
    tokens, response = created()
    with refused(ErrorCode.DELEGATION_TOKEN_EXPIRED):
        renew(tokens, RenewDelegationTokenRequest(hmac=response.hmac), ALICE, SECRETS, 10_401)
    with refused(ErrorCode.DELEGATION_TOKEN_EXPIRED):
        expire(
            tokens,
            ExpireDelegationTokenRequest(hmac=response.hmac, expiry_time_period_ms=5),
            ALICE,
            SECRETS,
            10_401,
        )
    assert expired(tokens, 10_400) == []
    assert SECTION.replay(tokens, expired(tokens, 10_401)) == {}
    assert "id-1" in tokens


def test_a_token_ends_when_its_owner_says_so() -> None:
    tokens, response = created()
    later = expire(
        tokens,
        ExpireDelegationTokenRequest(hmac=response.hmac, expiry_time_period_ms=50),
        ALICE,
        SECRETS,
        10_100,
    )
    assert SECTION.replay(tokens, later.records)["id-1"].expires_ms == 10_150
    now = expire(
        tokens,
        ExpireDelegationTokenRequest(hmac=response.hmac, expiry_time_period_ms=-1),
        BOB,
        SECRETS,
        10_100,
    )
    assert SECTION.replay(tokens, now.records) == {}


def many(requesters: int, each: int, until_ms: int = 20_000) -> dict[str, Token]:
    users = [Principal(f"user-{number}") for number in range(requesters)]
    ids = [(f"{user.name}-{number}", user) for user in users for number in range(each)]
    return {token_id: Token(token_id, user, user, (), 0, until_ms, until_ms) for token_id, user in ids}


def test_one_principal_has_so_many_tokens_and_no_more() -> None:
    """Each token costs every node memory, and each command time."""
    tokens, user = many(1, REQUESTER_TOKENS_MAX), Principal("user-0")
    asked = CreateDelegationTokenRequest()
    with refused(ErrorCode.POLICY_VIOLATION):
        create(tokens, asked, user, SETTINGS, "id", 10_000)
    assert create(tokens, asked, BOB, SETTINGS, "id", 10_000).records
    assert create(tokens, asked, user, SETTINGS, "id", 20_001).records, "ended tokens don't count"


def test_a_cluster_has_so_many_tokens_and_no_more() -> None:
    tokens = many(TOKENS_MAX // REQUESTER_TOKENS_MAX, REQUESTER_TOKENS_MAX)
    with refused(ErrorCode.POLICY_VIOLATION):
        create(tokens, CreateDelegationTokenRequest(), BOB, SETTINGS, "id", 10_000)


def test_each_secret_is_computed_once_and_forgotten_with_its_token(monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[str] = []
    secret_of = TokenSettings.secret_of

    def noting(settings: TokenSettings, token_id: str) -> bytes:
        computed.append(token_id)
        return secret_of(settings, token_id)

    monkeypatch.setattr(TokenSettings, "secret_of", noting)
    secrets, tokens = TokenSecrets(SETTINGS), many(1, 1_000)
    assert sum(1 for _ in secrets.learn(tokens)) >= 7
    for token_id in list(tokens)[:5]:
        assert secrets.find(tokens, secret_of(SETTINGS, token_id)) is tokens[token_id]
        assert secrets.find(tokens, b"other") is None
    assert sorted(computed) == sorted(tokens)
    gone = tokens.pop("user-0-0")
    assert secrets.find(tokens, secret_of(SETTINGS, gone.token_id)) is None
    assert len(secrets._ids) == len(secrets._secrets) == 999
