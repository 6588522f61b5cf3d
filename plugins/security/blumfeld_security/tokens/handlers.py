"""CreateDelegationToken (38), RenewDelegationToken (39), ExpireDelegationToken (40), DescribeDelegationToken (41)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from blumfeld.spi.completion import Completion, Steps
from blumfeld.spi.consensus import ClusterMetadata, submit_for
from blumfeld.spi.context import ANONYMOUS, ApiHandler, Principal, RequestContext
from blumfeld.spi.steps import CHUNK_ELEMENTS, STEP_ELEMENTS, at_once
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from blumfeld.wire.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from blumfeld.wire.messages.expire_delegation_token import ExpireDelegationTokenResponse
from blumfeld.wire.messages.renew_delegation_token import RenewDelegationTokenResponse
from blumfeld.wire.schema import Message
from blumfeld_security.tokens.delegation_tokens import SECTION, USER, Token, TokenSettings


def token_handlers(metadata: ClusterMetadata, node_id: int, settings: TokenSettings) -> Sequence[ApiHandler]:
    """Returns the handlers of the four APIs."""

    def submit(request: Message, context: RequestContext) -> Completion[Message]:
        check_may_have_tokens(context)
        return submit_for(context, request, metadata, node_id)

    def create(request: CreateDelegationTokenRequest, context: RequestContext) -> Completion[Message]:
        name, kind = request.owner_principal_name, request.owner_principal_type or USER
        own = (context.principal.name, context.principal.type)
        if name and (name, kind) != own and not context.authorize("CreateTokens", "User", f"{kind}:{name}"):
            raise BrokerError(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
        return submit(request, context)

    def describe(request: DescribeDelegationTokenRequest, context: RequestContext) -> Steps[Message]:
        check_may_have_tokens(context)
        if not settings.secret_key:
            raise BrokerError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
        owners = None
        if request.owners is not None:
            # A set: any client may name as many owners as its frame holds.
            owners = set()
            for number, each in enumerate(request.owners, 1):
                owners.add(Principal(each.principal_name, each.principal_type))
                if not number % STEP_ELEMENTS:
                    yield None
        tokens: Mapping[str, Token] = metadata.image.section(SECTION)
        shown = []
        for number, token in enumerate(tokens.values(), 1):
            if (owners is None or not owners.isdisjoint(token.may_be_renewed_by)) and _may_see(
                token, context
            ):
                shown.append(described(token, settings))
            if not number % CHUNK_ELEMENTS:
                yield None
        return DescribeDelegationTokenResponse(tokens=shown)

    def described_in_steps(request: DescribeDelegationTokenRequest, context: RequestContext) -> Any:
        steps = describe(request, context)
        is_long = context.is_large or len(metadata.image.section(SECTION)) > CHUNK_ELEMENTS
        return steps if is_long else at_once(steps)

    served: tuple[tuple[int, int, Any, type[Message]], ...] = (
        (38, 3, create, CreateDelegationTokenResponse),
        (39, 2, submit, RenewDelegationTokenResponse),
        (40, 2, submit, ExpireDelegationTokenResponse),
        (41, 3, described_in_steps, DescribeDelegationTokenResponse),
    )
    return [
        ApiHandler(
            key=key,
            min_version=1,
            max_version=latest,
            listeners=("broker",) if key == 41 else ("broker", "controller"),
            handle=handle,
            error_response=_failed(response),
        )
        for key, latest, handle, response in served
    ]


def check_may_have_tokens(context: RequestContext) -> None:
    """Refuse a client whose name nothing proves, and one that logged in by a token (KIP-48).

    :raises BrokerError: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    """
    protocol, principal = context.listener.security_protocol, context.principal
    is_nobody = protocol == "SSL" and principal == ANONYMOUS
    if protocol == "PLAINTEXT" or is_nobody or principal.token_authenticated:
        raise BrokerError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


def described(token: Token, settings: TokenSettings) -> DescribedDelegationToken:
    """Returns a token as its owner sees it, with its secret."""
    return DescribedDelegationToken(
        principal_type=token.owner.type,
        principal_name=token.owner.name,
        token_requester_principal_type=token.requester.type,
        token_requester_principal_name=token.requester.name,
        issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expires_ms,
        max_timestamp=token.max_ms,
        token_id=token.token_id,
        hmac=settings.secret_of(token.token_id),
        renewers=[
            DescribedDelegationTokenRenewer(principal_type=each.type, principal_name=each.name)
            for each in token.renewers
        ],
    )


def _may_see(token: Token, context: RequestContext) -> bool:
    return (
        token.may_renew(context.principal)
        or context.authorize("Describe", "DelegationToken", token.token_id)
        or context.authorize("DescribeTokens", "User", str(token.owner))
    )


def _failed(response: type[Message]) -> Callable[[Any, int, str | None], Message]:
    def failed(_request: Message, code: int, _message: str | None) -> Message:
        return response(error_code=code)

    return failed
