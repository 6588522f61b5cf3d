"""Delegation tokens: the section ``delegation tokens`` of the image, and what a command makes of it. Pure.

A token is an id and a secret. The secret is the HMAC of the id by ``delegation.token.secret.key``, so no record has it.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence

import msgspec

from blumfeld.spi.completion import Steps
from blumfeld.spi.context import Principal
from blumfeld.spi.image_sections import Decided
from blumfeld.spi.steps import CHUNK_ELEMENTS, drained
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from blumfeld.wire.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from blumfeld.wire.messages.metadata_records import DelegationTokenRecord, RemoveDelegationTokenRecord
from blumfeld.wire.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from blumfeld.wire.schema import Message

SECTION = "delegation tokens"
USER = "User"
RENEWERS_MAX = 1_000
REQUESTER_TOKENS_MAX = 1_000
"""Tokens that one principal may have asked for, and that haven't ended. Kafka has no such bound: there a client with a
login of its own fills the memory of every node."""
TOKENS_MAX = 10_000
"""Tokens of the cluster that haven't ended. Each command looks at all, which takes a millisecond then."""


class Token(msgspec.Struct, frozen=True):
    """One token. Times are wall time in ms."""

    token_id: str
    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...]
    issued_ms: int
    max_ms: int
    """It can't be renewed beyond this time."""
    expires_ms: int

    def is_alive(self, now_ms: int) -> bool:
        """Whether it can be used and renewed."""
        return now_ms <= self.expires_ms and now_ms <= self.max_ms

    @property
    def may_be_renewed_by(self) -> tuple[Principal, ...]:
        """The principals that may renew and expire it: its owner, its requester and its renewers."""
        return self.owner, self.requester, *self.renewers

    def may_renew(self, principal: Principal) -> bool:
        """Whether the principal may renew and expire it."""
        return principal in self.may_be_renewed_by


class TokenSection:
    """Implements ``spi.image_sections.ImageSection``: token id → token."""

    name = SECTION
    records: tuple[type[Message], ...] = (DelegationTokenRecord, RemoveDelegationTokenRecord)

    def empty(self) -> Mapping[str, Token]:
        """Returns no tokens."""
        return {}

    def replay(self, value: Mapping[str, Token], records: Sequence[Message]) -> Mapping[str, Token]:
        """Returns the tokens after the records."""
        tokens = dict(value)
        for record in records:
            if isinstance(record, DelegationTokenRecord):
                tokens[record.token_id] = Token(
                    record.token_id,
                    principal_of(record.owner),
                    principal_of(record.requester),
                    tuple(principal_of(each) for each in record.renewers),
                    record.issue_timestamp,
                    record.max_timestamp,
                    record.expiration_timestamp,
                )
            elif isinstance(record, RemoveDelegationTokenRecord):
                tokens.pop(record.token_id, None)
        return tokens


def principal_of(text: str) -> Principal:
    """Returns the principal of ``User:alice``."""
    kind, _, name = text.partition(":")
    return Principal(name, kind)


class TokenSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Kafka's keys of delegation tokens."""

    secret_key: bytes
    """``delegation.token.secret.key``; empty: the cluster has no tokens."""
    max_lifetime_ms: int = 604_800_000
    expiry_ms: int = 86_400_000

    def secret_of(self, token_id: str) -> bytes:
        """Returns the secret of a token."""
        return hmac.digest(self.secret_key, token_id.encode(), "sha512")


class TokenSecrets:
    """Finds tokens by their secrets. It remembers each secret: to compute one takes microseconds, and a command would
    compute those of all tokens."""

    def __init__(self, settings: TokenSettings) -> None:
        self.settings = settings
        self._secrets: dict[str, bytes] = {}
        self._ids: dict[bytes, str] = {}

    def learn(self, tokens: Mapping[str, Token]) -> Steps[None]:
        """Bring the memory up to these tokens, a part in each step."""
        for token_id in self._secrets.keys() - tokens.keys():
            del self._ids[self._secrets.pop(token_id)]
        for number, token_id in enumerate(tokens.keys() - self._secrets.keys(), 1):
            secret = self._secrets[token_id] = self.settings.secret_of(token_id)
            self._ids[secret] = token_id
            if not number % CHUNK_ELEMENTS:
                yield None

    def find(self, tokens: Mapping[str, Token], secret: bytes) -> Token | None:
        """Returns the token with this secret. The time tells nothing of other secrets: Python hashes bytes with a key
        that each process makes anew."""
        drained(self.learn(tokens))
        return tokens.get(self._ids.get(secret, ""))


def record_of(token: Token) -> DelegationTokenRecord:
    """Returns the record that sets a token."""
    return DelegationTokenRecord(
        owner=str(token.owner),
        requester=str(token.requester),
        renewers=[str(each) for each in token.renewers],
        issue_timestamp=token.issued_ms,
        max_timestamp=token.max_ms,
        expiration_timestamp=token.expires_ms,
        token_id=token.token_id,
    )


def create(
    tokens: Mapping[str, Token],
    request: CreateDelegationTokenRequest,
    requester: Principal,
    settings: TokenSettings,
    token_id: str,
    now_ms: int,
) -> Decided:
    """Decide on CreateDelegationToken.

    :raises BrokerError: DELEGATION_TOKEN_AUTH_DISABLED; INVALID_PRINCIPAL_TYPE: a renewer is no user;
        POLICY_VIOLATION: there are too many tokens
    """
    _check_enabled(settings)
    _check_room(tokens, requester, now_ms)
    owner = requester
    if request.owner_principal_name:
        owner = Principal(request.owner_principal_name, request.owner_principal_type or USER)
    others = {each.principal_type for each in request.renewers} - {USER}
    if others or owner.type != USER or len(request.renewers) > RENEWERS_MAX:
        raise BrokerError(ErrorCode.INVALID_PRINCIPAL_TYPE)
    lifetime_ms = settings.max_lifetime_ms
    if request.max_lifetime_ms > 0:
        lifetime_ms = min(lifetime_ms, request.max_lifetime_ms)
    token = Token(
        token_id,
        owner,
        requester,
        tuple(Principal(each.principal_name, each.principal_type) for each in request.renewers),
        now_ms,
        now_ms + lifetime_ms,
        now_ms + min(lifetime_ms, settings.expiry_ms),
    )
    response = CreateDelegationTokenResponse(
        principal_type=owner.type,
        principal_name=owner.name,
        token_requester_principal_type=requester.type,
        token_requester_principal_name=requester.name,
        issue_timestamp_ms=token.issued_ms,
        expiry_timestamp_ms=token.expires_ms,
        max_timestamp_ms=token.max_ms,
        token_id=token_id,
        hmac=settings.secret_of(token_id),
    )
    return Decided((record_of(token),), response)


def renew(
    tokens: Mapping[str, Token],
    request: RenewDelegationTokenRequest,
    principal: Principal,
    secrets: TokenSecrets,
    now_ms: int,
) -> Decided:
    """Decide on RenewDelegationToken.

    :raises BrokerError: as :func:`_named`, and DELEGATION_TOKEN_EXPIRED
    """
    token = _named(tokens, bytes(request.hmac), principal, secrets)
    if not token.is_alive(now_ms):
        raise BrokerError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
    period_ms = secrets.settings.expiry_ms
    if request.renew_period_ms > 0:
        period_ms = min(period_ms, request.renew_period_ms)
    renewed = msgspec.structs.replace(token, expires_ms=min(token.max_ms, now_ms + period_ms))
    return Decided(
        (record_of(renewed),), RenewDelegationTokenResponse(expiry_timestamp_ms=renewed.expires_ms)
    )


def expire(
    tokens: Mapping[str, Token],
    request: ExpireDelegationTokenRequest,
    principal: Principal,
    secrets: TokenSecrets,
    now_ms: int,
) -> Decided:
    """Decide on ExpireDelegationToken: set the end of a token, or remove it at once (a negative period).

    :raises BrokerError: as :func:`_named`, and DELEGATION_TOKEN_EXPIRED
    """
    token = _named(tokens, bytes(request.hmac), principal, secrets)
    period_ms = request.expiry_time_period_ms
    if period_ms < 0:
        removal = RemoveDelegationTokenRecord(token_id=token.token_id)
        return Decided((removal,), ExpireDelegationTokenResponse(expiry_timestamp_ms=now_ms))
    if not token.is_alive(now_ms):
        raise BrokerError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
    ending = msgspec.structs.replace(token, expires_ms=min(token.max_ms, now_ms + min(period_ms, 1 << 53)))
    return Decided((record_of(ending),), ExpireDelegationTokenResponse(expiry_timestamp_ms=ending.expires_ms))


def expired(tokens: Mapping[str, Token], now_ms: int) -> list[RemoveDelegationTokenRecord]:
    """Returns the records that remove tokens which have ended."""
    return [
        RemoveDelegationTokenRecord(token_id=token.token_id)
        for token in tokens.values()
        if not token.is_alive(now_ms)
    ]


def _check_enabled(settings: TokenSettings) -> None:
    if not settings.secret_key:
        raise BrokerError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)


def _check_room(tokens: Mapping[str, Token], requester: Principal, now_ms: int) -> None:
    alive = [token.requester for token in tokens.values() if token.is_alive(now_ms)]
    if len(alive) >= TOKENS_MAX:
        raise BrokerError(
            ErrorCode.POLICY_VIOLATION, f"the cluster has {TOKENS_MAX} delegation tokens; let some end"
        )
    if alive.count(requester) >= REQUESTER_TOKENS_MAX:
        text = f"{requester} has {REQUESTER_TOKENS_MAX} delegation tokens; let some end, or renew one"
        raise BrokerError(ErrorCode.POLICY_VIOLATION, text)


def _named(tokens: Mapping[str, Token], secret: bytes, principal: Principal, secrets: TokenSecrets) -> Token:
    """Returns the token with this secret.

    :raises BrokerError: DELEGATION_TOKEN_AUTH_DISABLED; DELEGATION_TOKEN_NOT_FOUND;
        DELEGATION_TOKEN_OWNER_MISMATCH: the principal may not renew it
    """
    _check_enabled(secrets.settings)
    token = secrets.find(tokens, secret)
    if token is None:
        raise BrokerError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
    if not token.may_renew(principal):
        raise BrokerError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
    return token
