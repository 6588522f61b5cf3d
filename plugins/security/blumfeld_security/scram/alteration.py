"""The controller's command AlterUserScramCredentials. Pure; Kafka's rules and texts (``ScramControlManager``)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from blumfeld.client.security.scram import BY_NUMBER, ITERATIONS_MIN
from blumfeld.spi.cluster import ClusterImage
from blumfeld.spi.image_sections import Circumstances, Decided
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from blumfeld.wire.messages.metadata_records import (
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from blumfeld.wire.schema import Message
from blumfeld_security.exchanges.scram import ITERATIONS_MAX, credential_of
from blumfeld_security.scram.credentials import SECTION, Credentials

Problem = tuple[ErrorCode, str]


class AlterCredentials:
    """Implements ``spi.image_sections.ControllerCommand``."""

    request: type[Message] = AlterUserScramCredentialsRequest

    def decide(self, image: ClusterImage, request: Message, at: Circumstances) -> Decided:
        """Decide on each user by itself. A user with an error keeps all its credentials."""
        return decide(image.section(SECTION), cast("AlterUserScramCredentialsRequest", request))


def decide(credentials: Credentials, request: AlterUserScramCredentialsRequest) -> Decided:
    """Returns the records, and a result for each user that the request names."""
    problems = _problems(credentials, request)
    records: list[Message] = [
        RemoveUserScramCredentialRecord(name=each.name, mechanism=each.mechanism)
        for each in request.deletions
        if each.name not in problems
    ]
    records += [upserted(each) for each in request.upsertions if each.name not in problems]
    done = dict.fromkeys(each.name for each in _all(request) if each.name not in problems)
    results = [
        AlterUserScramCredentialsResult(user=user, error_code=int(code), error_message=message)
        for user, (code, message) in problems.items()
    ]
    results += [AlterUserScramCredentialsResult(user=user, error_message=None) for user in done]
    return Decided(tuple(records), AlterUserScramCredentialsResponse(results=results))


def upserted(upsertion: ScramCredentialUpsertion) -> UserScramCredentialRecord:
    """Returns the record of a credential. The salted password itself is kept nowhere."""
    mechanism, salt = BY_NUMBER[upsertion.mechanism], bytes(upsertion.salt)
    made = credential_of(mechanism, bytes(upsertion.salted_password), salt, upsertion.iterations)
    return UserScramCredentialRecord(
        name=upsertion.name,
        mechanism=mechanism.number,
        salt=made.salt,
        stored_key=made.stored_key,
        server_key=made.server_key,
        iterations=made.iterations,
    )


def _all(
    request: AlterUserScramCredentialsRequest,
) -> Iterable[ScramCredentialDeletion | ScramCredentialUpsertion]:
    yield from request.deletions
    yield from request.upsertions


def _problems(credentials: Credentials, request: AlterUserScramCredentialsRequest) -> dict[str, Problem]:
    problems: dict[str, Problem] = {}
    named: set[tuple[str, int]] = set()
    for each in _all(request):
        key = (each.name, each.mechanism)
        problem = _problem(credentials, each)
        if key in named:
            problem = (
                ErrorCode.DUPLICATE_RESOURCE,
                "A user credential cannot be altered twice in the same request",
            )
        named.add(key)
        if problem is not None:
            problems.setdefault(each.name, problem)
    return problems


def _problem(
    credentials: Credentials, each: ScramCredentialDeletion | ScramCredentialUpsertion
) -> Problem | None:
    if not each.name:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"
    if each.mechanism not in BY_NUMBER:
        return ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"
    if isinstance(each, ScramCredentialDeletion):
        if (each.name, each.mechanism) not in credentials.by_user:
            return (
                ErrorCode.RESOURCE_NOT_FOUND,
                "Attempt to delete a user credential that does not exist",
            )
        return None
    if each.iterations < ITERATIONS_MIN:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"
    if each.iterations > ITERATIONS_MAX:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations"
    if not each.salt or not each.salted_password:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Salt and salted password must not be empty"
    return None
