"""AlterUserScramCredentials and DescribeUserScramCredentials decide as Kafka does."""

from __future__ import annotations

from typing import Any

from blumfeld.client.security.scram import SHA_256, SHA_512
from blumfeld.spi.steps import drained
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from blumfeld.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from blumfeld.wire.messages.metadata_records import UserScramCredentialRecord
from blumfeld.wire.schema import Message
from blumfeld_security.exchanges.scram import Credential, credential_of
from blumfeld_security.scram.alteration import decide
from blumfeld_security.scram.credentials import Credentials, ScramSection
from blumfeld_security.scram.handlers import described

SALT = b"salt" * 4
SALTED = SHA_256.salted_password("pencil", SALT, 4096)


def upsertion(name: str, mechanism: int = 1, iterations: int = 4096) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=SALT, salted_password=SALTED
    )


def deletion(name: str, mechanism: int = 1) -> ScramCredentialDeletion:
    return ScramCredentialDeletion(name=name, mechanism=mechanism)


def with_users(*upsertions: ScramCredentialUpsertion) -> Credentials:
    section = ScramSection()
    return section.replay(
        section.empty(),
        decide(section.empty(), AlterUserScramCredentialsRequest(upsertions=list(upsertions))).records,
    )


def outcome(
    credentials: Credentials,
    *,
    deletions: list[ScramCredentialDeletion] | None = None,
    upsertions: list[ScramCredentialUpsertion] | None = None,
) -> tuple[dict[str, int], tuple[Message, ...]]:
    request = AlterUserScramCredentialsRequest(deletions=deletions or [], upsertions=upsertions or [])
    decided = decide(credentials, request)
    results = decided.response.results  # type: ignore[attr-defined]
    assert len({result.user for result in results}) == len(results)
    return {result.user: result.error_code for result in results}, decided.records


def test_a_credential_is_kept_without_the_salted_password() -> None:
    codes, (record,) = outcome(ScramSection().empty(), upsertions=[upsertion("alice")])
    assert codes == {"alice": 0}
    made = credential_of(SHA_256, SALTED, SALT, 4096)
    assert record == UserScramCredentialRecord(
        name="alice",
        mechanism=1,
        salt=SALT,
        stored_key=made.stored_key,
        server_key=made.server_key,
        iterations=4096,
    )
    assert SALTED not in (made.stored_key, made.server_key)
    assert with_users(upsertion("alice")).find(SHA_256, "alice") == made


def test_a_deleted_credential_is_gone_and_the_users_other_mechanism_stays() -> None:
    before = with_users(upsertion("alice"), upsertion("alice", mechanism=2))
    codes, records = outcome(before, deletions=[deletion("alice")])
    after = ScramSection().replay(before, records)
    assert codes == {"alice": 0}
    assert after.find(SHA_256, "alice") is None
    assert after.find(SHA_512, "alice") is not None
    assert before.find(SHA_256, "alice") is not None


def test_what_kafka_refuses_is_refused_by_user() -> None:
    before = with_users(upsertion("alice"))
    codes, records = outcome(
        before,
        deletions=[
            deletion("bob"),
            deletion("alice", mechanism=2),
            deletion("carol", mechanism=9),
            deletion(""),
        ],
        upsertions=[
            upsertion("few", iterations=4095),
            upsertion("many", iterations=16385),
            upsertion("twice"),
            upsertion("twice"),
            upsertion("good", iterations=16384),
        ],
    )
    assert codes == {
        "bob": ErrorCode.RESOURCE_NOT_FOUND,
        "alice": ErrorCode.RESOURCE_NOT_FOUND,
        "carol": ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        "": ErrorCode.UNACCEPTABLE_CREDENTIAL,
        "few": ErrorCode.UNACCEPTABLE_CREDENTIAL,
        "many": ErrorCode.UNACCEPTABLE_CREDENTIAL,
        "twice": ErrorCode.DUPLICATE_RESOURCE,
        "good": 0,
    }
    assert [record.name for record in records] == ["good"]  # type: ignore[attr-defined]


def test_a_user_with_one_error_keeps_everything() -> None:
    before = with_users(upsertion("alice"))
    codes, records = outcome(
        before,
        deletions=[deletion("alice")],
        upsertions=[upsertion("alice", mechanism=2, iterations=1)],
    )
    assert codes == {"alice": ErrorCode.UNACCEPTABLE_CREDENTIAL}
    assert records == ()


def test_a_credential_is_not_deleted_and_set_in_one_request() -> None:
    codes, records = outcome(
        with_users(upsertion("alice")), deletions=[deletion("alice")], upsertions=[upsertion("alice")]
    )
    assert codes == {"alice": ErrorCode.DUPLICATE_RESOURCE}
    assert records == ()


def test_a_description_has_mechanisms_and_iterations_only() -> None:
    credentials = with_users(
        upsertion("alice"), upsertion("alice", mechanism=2, iterations=8192), upsertion("bob")
    )
    everyone: Any = drained(described(credentials, DescribeUserScramCredentialsRequest(users=None)))
    assert {
        result.user: [(info.mechanism, info.iterations) for info in result.credential_infos]
        for result in everyone.results
    } == {"alice": [(1, 4096), (2, 8192)], "bob": [(1, 4096)]}
    named = [UserName(name=name) for name in ("bob", "carol", "alice", "alice")]
    some: Any = drained(described(credentials, DescribeUserScramCredentialsRequest(users=named)))
    assert [(result.user, result.error_code) for result in some.results] == [
        ("bob", 0),
        ("carol", ErrorCode.RESOURCE_NOT_FOUND),
        ("alice", ErrorCode.DUPLICATE_RESOURCE),
    ]


def test_a_made_up_credential_looks_like_a_users() -> None:
    """The same salt each time, also after others have come, and the length and iterations of a real one."""
    some = with_users(upsertion("alice", iterations=8192))
    more = with_users(upsertion("alice", iterations=8192), upsertion("bob"))
    real = some.find(SHA_256, "alice")
    assert real is not None
    made_up = some.made_up(SHA_256, "mallory")
    assert made_up == more.made_up(SHA_256, "mallory")
    assert made_up.salt != some.made_up(SHA_256, "mallorx").salt
    keyed = {some.made_up(SHA_256, "mallory", secret).salt for secret in (b"", b"one", b"other")}
    assert len(keyed) == 3, "nobody computes it without the secret"
    assert (len(made_up.salt), made_up.iterations) == (len(real.salt), real.iterations)
    assert len(made_up.stored_key) == SHA_256.size
    assert made_up.salt != Credentials({}).made_up(SHA_256, "mallory").salt
    assert (
        some.made_up(SHA_256, "mallory", b"key").salt
        == Credentials({("alice", 1): Credential(SALT, b"", b"", 4096)})
        .made_up(SHA_256, "mallory", b"key")
        .salt
    )
