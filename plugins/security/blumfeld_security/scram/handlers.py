"""DescribeUserScramCredentials (key 50), v0, and AlterUserScramCredentials (key 51), v0 (KIP-554)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from blumfeld.spi.completion import Completion
from blumfeld.spi.consensus import ClusterMetadata, OnBehalf
from blumfeld.spi.context import ApiHandler, RequestContext
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
from blumfeld_security.exchanges.scram import BY_NUMBER
from blumfeld_security.scram.credentials import SECTION, Credentials

CLUSTER_NAME = "kafka-cluster"
ALTER_TIMEOUT_MS = 30_000
"""Time for the controller's decision. The request has no timeout of its own; Kafka takes ``request.timeout.ms``."""


def scram_handlers(metadata: ClusterMetadata, node_id: int) -> Sequence[ApiHandler]:
    """Returns the handlers of both APIs."""

    def describe(request: DescribeUserScramCredentialsRequest, context: RequestContext) -> Message:
        if not context.authorize("Describe", "Cluster", CLUSTER_NAME):
            raise BrokerError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return described(metadata.image.section(SECTION), request)

    def alter(request: AlterUserScramCredentialsRequest, context: RequestContext) -> Completion[Message]:
        if not context.authorize("Alter", "Cluster", CLUSTER_NAME):
            raise BrokerError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        if context.listener.kind == "controller":
            controller = metadata.controller
            if controller is None or controller.node_id != node_id:
                raise BrokerError(ErrorCode.NOT_CONTROLLER)
        on_behalf = OnBehalf(context.principal, context.peer_host, context.client_id)
        return metadata.submit(request, ALTER_TIMEOUT_MS, on_behalf=on_behalf)

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


def described(
    credentials: Credentials, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """Returns the mechanisms and iterations of the users that a request names, or of all."""
    if request.users:
        named = Counter(each.name for each in request.users)
    else:
        named = Counter(credentials.users())
    results = [_described(credentials, user, times) for user, times in named.items()]
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


def _alter_failed(request: AlterUserScramCredentialsRequest, code: int, message: str | None) -> Message:
    users = dict.fromkeys(
        [each.name for each in request.deletions] + [each.name for each in request.upsertions]
    )
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(user=user, error_code=code, error_message=message)
            for user in users
        ]
    )
