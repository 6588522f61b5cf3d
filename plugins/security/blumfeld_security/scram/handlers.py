"""DescribeUserScramCredentials (key 50), v0, and AlterUserScramCredentials (key 51), v0 (KIP-554)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import Any

from blumfeld.client.security.scram import BY_NUMBER
from blumfeld.spi.completion import Completion, Steps
from blumfeld.spi.consensus import ClusterMetadata, submit_for
from blumfeld.spi.context import ApiHandler, RequestContext
from blumfeld.spi.steps import STEP_ELEMENTS, at_once
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from blumfeld.wire.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from blumfeld.wire.schema import Message
from blumfeld_security.scram.credentials import SECTION, Credentials

CLUSTER_NAME = "kafka-cluster"
ALTERATIONS_MAX = 1_000
"""Credentials that a request may change. The controller decides on all of them in one turn, at 5 µs each, because a
user with one error keeps all its credentials."""


def scram_handlers(metadata: ClusterMetadata, node_id: int) -> Sequence[ApiHandler]:
    """Returns the handlers of both APIs."""

    def describe(request: DescribeUserScramCredentialsRequest, context: RequestContext) -> Any:
        if not context.authorize("Describe", "Cluster", CLUSTER_NAME):
            raise BrokerError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        credentials: Credentials = metadata.image.section(SECTION)
        steps = described(credentials, request)
        return steps if context.is_large or len(credentials.by_user) > STEP_ELEMENTS else at_once(steps)

    def alter(request: AlterUserScramCredentialsRequest, context: RequestContext) -> Completion[Message]:
        if not context.authorize("Alter", "Cluster", CLUSTER_NAME):
            raise BrokerError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        count = len(request.deletions) + len(request.upsertions)
        if count > ALTERATIONS_MAX:
            text = f"{count} credentials in one request; allowed: {ALTERATIONS_MAX}"
            raise BrokerError(ErrorCode.POLICY_VIOLATION, text)
        return submit_for(context, request, metadata, node_id)

    return (
        ApiHandler(
            key=50,
            min_version=0,
            max_version=0,
            handle=describe,
            error_response=_describe_failed,
        ),
        ApiHandler(
            key=51,
            min_version=0,
            max_version=0,
            listeners=("broker", "controller"),
            handle=alter,
            error_response=_alter_failed,
        ),
    )


def described(credentials: Credentials, request: DescribeUserScramCredentialsRequest) -> Steps[Message]:
    """The steps to the mechanisms and iterations of the users that a request names, or of all."""
    named: Counter[str] = Counter()
    if not request.users:
        named.update(credentials.users())
    for start in range(0, len(request.users or ()), STEP_ELEMENTS):
        named.update(each.name for each in (request.users or ())[start : start + STEP_ELEMENTS])
        yield None
    results = []
    for number, (user, times) in enumerate(named.items(), 1):
        results.append(_described(credentials, user, times))
        if not number % STEP_ELEMENTS:
            yield None
    return DescribeUserScramCredentialsResponse(error_message=None, results=results)


def _described(credentials: Credentials, user: str, times: int) -> DescribeUserScramCredentialsResult:
    if times > 1:
        return DescribeUserScramCredentialsResult(
            user=user,
            error_code=int(ErrorCode.DUPLICATE_RESOURCE),
            error_message="Cannot describe SCRAM credentials for the same user twice in a single request: "
            + user,
        )
    found = {number: credentials.by_user.get((user, number)) for number in BY_NUMBER}
    infos = [
        CredentialInfo(mechanism=number, iterations=credential.iterations)
        for number, credential in found.items()
        if credential is not None
    ]
    if not infos:
        return DescribeUserScramCredentialsResult(
            user=user,
            error_code=int(ErrorCode.RESOURCE_NOT_FOUND),
            error_message=f"Attempt to describe a user credential that does not exist: {user}",
        )
    return DescribeUserScramCredentialsResult(user=user, error_message=None, credential_infos=infos)


def _describe_failed(_request: Message, code: int, message: str | None) -> Message:
    return DescribeUserScramCredentialsResponse(error_code=code, error_message=message)


def _alter_failed(
    request: AlterUserScramCredentialsRequest, code: int, message: str | None
) -> Steps[Message]:
    results: dict[str, AlterUserScramCredentialsResult] = {}
    each: Any
    for number, each in enumerate(chain(request.deletions, request.upsertions), 1):
        user = each.name
        if user not in results:
            results[user] = AlterUserScramCredentialsResult(user=user, error_code=code, error_message=message)
        if not number % STEP_ELEMENTS:
            yield None
    return AlterUserScramCredentialsResponse(results=list(results.values()))
