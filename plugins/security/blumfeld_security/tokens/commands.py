"""The controller's commands on delegation tokens. Each also removes the tokens that have ended meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

from blumfeld.spi.cluster import ClusterImage
from blumfeld.spi.context import Principal
from blumfeld.spi.image_sections import Circumstances, ControllerCommand, Decided
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.create_delegation_token import CreateDelegationTokenRequest
from blumfeld.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from blumfeld.wire.messages.renew_delegation_token import RenewDelegationTokenRequest
from blumfeld.wire.primitives import uuid_text
from blumfeld.wire.schema import Message
from blumfeld_security.tokens.delegation_tokens import (
    SECTION,
    Token,
    TokenSecrets,
    create,
    expire,
    expired,
    renew,
)

Decide = Callable[[Mapping[str, Token], Message, Principal, TokenSecrets, Circumstances], Decided]


class TokenCommand:
    """Implements ``spi.image_sections.ControllerCommand`` for one request.

    :param secrets: returns those of the node, which are there when a command is decided
    """

    def __init__(self, request: type[Message], secrets: Callable[[], TokenSecrets], decide: Decide) -> None:
        self.request = request
        self._secrets = secrets
        self._decide = decide

    def decide(self, image: ClusterImage, request: Message, at: Circumstances) -> Decided:
        """Decide for the client on whose behalf the request came."""
        if at.on_behalf is None:
            raise BrokerError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
        tokens: Mapping[str, Token] = image.section(SECTION)
        decided = self._decide(tokens, request, at.on_behalf.principal, self._secrets(), at)
        named = {record.token_id for record in decided.records}  # type: ignore[attr-defined]
        ended = [each for each in expired(tokens, at.wall_ms) if each.token_id not in named]
        return Decided((*decided.records, *ended), decided.response)


def token_commands(secrets: Callable[[], TokenSecrets]) -> tuple[ControllerCommand, ...]:
    """Returns the commands for CreateDelegationToken, RenewDelegationToken and ExpireDelegationToken."""
    return (
        TokenCommand(CreateDelegationTokenRequest, secrets, _create),
        TokenCommand(RenewDelegationTokenRequest, secrets, _renew),
        TokenCommand(ExpireDelegationTokenRequest, secrets, _expire),
    )


def _create(
    tokens: Mapping[str, Token],
    request: Message,
    principal: Principal,
    secrets: TokenSecrets,
    at: Circumstances,
) -> Decided:
    token_id = uuid_text(at.new_secret(16))
    while token_id.startswith("-"):  # Kafka's tools would take it for an option
        token_id = uuid_text(at.new_secret(16))
    asked = cast("CreateDelegationTokenRequest", request)
    return create(tokens, asked, principal, secrets.settings, token_id, at.wall_ms)


def _renew(
    tokens: Mapping[str, Token],
    request: Message,
    principal: Principal,
    secrets: TokenSecrets,
    at: Circumstances,
) -> Decided:
    return renew(tokens, cast("RenewDelegationTokenRequest", request), principal, secrets, at.wall_ms)


def _expire(
    tokens: Mapping[str, Token],
    request: Message,
    principal: Principal,
    secrets: TokenSecrets,
    at: Circumstances,
) -> Decided:
    return expire(tokens, cast("ExpireDelegationTokenRequest", request), principal, secrets, at.wall_ms)
