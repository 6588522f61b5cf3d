"""SCRAM's exchange, held against RFC 7677's example, properties, and hostile bytes."""

from __future__ import annotations

import base64
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blumfeld.client.security.refusals import LoginRefused, Malformed
from blumfeld.client.security.scram import (
    MECHANISMS,
    SHA_256,
    SHA_512,
    Challenge,
    ScramClient,
    ScramMechanism,
    quoted,
    unquoted,
)
from blumfeld_security.exchanges.scram import Credential, ScramServer, credential_of

# RFC 7677, 3: the example of SCRAM-SHA-256.
CLIENT_NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
CLIENT_FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="

PENCIL = {each.name: each.salted_password("pencil", SALT, 4096) for each in (SHA_256, SHA_512)}


def salted(mechanism: ScramMechanism, password: str = "pencil") -> Callable[[Challenge], bytes]:
    return lambda challenge: mechanism.salted_password(password, challenge.salt, challenge.iterations)


def pencil(mechanism: ScramMechanism) -> Credential:
    return credential_of(mechanism, PENCIL[mechanism.name], SALT, 4096)


def final_of(client: ScramClient, challenge: bytes, salted_password: Callable[[Challenge], bytes]) -> bytes:
    read = client.read(challenge)
    return client.proof(read, salted_password(read))


def begun(mechanism: ScramMechanism = SHA_256) -> ScramServer:
    server = ScramServer(mechanism)
    server.first(CLIENT_FIRST)
    assert server.challenge(pencil(mechanism), SERVER_NONCE).startswith(b"r=" + CLIENT_NONCE.encode())
    return server


def test_both_sides_speak_the_example_of_rfc_7677() -> None:
    client, server = ScramClient(SHA_256, "user", CLIENT_NONCE), ScramServer(SHA_256)
    assert client.first() == CLIENT_FIRST
    assert server.first(CLIENT_FIRST).user == "user"
    assert server.challenge(pencil(SHA_256), SERVER_NONCE) == SERVER_FIRST
    assert final_of(client, SERVER_FIRST, salted(SHA_256)) == CLIENT_FINAL
    assert server.final(CLIENT_FINAL) == SERVER_FINAL
    client.verify(SERVER_FINAL)


@pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=MECHANISMS)
def test_a_client_with_the_password_gets_in_and_one_without_does_not(mechanism: ScramMechanism) -> None:
    for password, enters in (("pencil", True), ("Pencil", False), ("pencil ", False)):
        client, server = ScramClient(mechanism, "user", CLIENT_NONCE), ScramServer(mechanism)
        server.first(client.first())
        final = final_of(
            client, server.challenge(pencil(mechanism), SERVER_NONCE), salted(mechanism, password)
        )
        if enters:
            client.verify(server.final(final))
        else:
            with pytest.raises(LoginRefused, match="SASL_AUTHENTICATION_FAILED"):
                server.final(final)


def test_a_client_that_puts_its_nonce_in_front_twice_gets_in() -> None:
    """librdkafka before 2.6.1 does, and Kafka takes it. The proof is over what was sent, so nothing is lost."""
    client, server = ScramClient(SHA_256, "user", CLIENT_NONCE), ScramServer(SHA_256)
    server.first(client.first())
    challenge = server.challenge(pencil(SHA_256), SERVER_NONCE)
    read = client.read(challenge)
    twice = read._replace(nonce=CLIENT_NONCE + read.nonce)
    client.verify(server.final(client.proof(twice, salted(SHA_256)(read))))


def test_a_client_refuses_a_server_that_only_pretends() -> None:
    client = ScramClient(SHA_256, "user", CLIENT_NONCE)
    final_of(client, SERVER_FIRST, salted(SHA_256))
    for pretended in (b"v=" + base64.b64encode(bytes(32)), b"v=", b"", b"e=other-error", b"v=6rri"):
        with pytest.raises(LoginRefused):
            client.verify(pretended)


@pytest.mark.parametrize(
    "challenge",
    [
        b"r=other,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        b"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        b"r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4095",
        b"r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4000000000",
        b"r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=-4096",
        b"r=rOprNGfwEbeRWgbNEkqOx,s=,i=4096",
        b"m=x,r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        b"e=invalid-proof",
    ],
)
def test_a_client_computes_nothing_for_a_challenge_that_is_none(challenge: bytes) -> None:
    with pytest.raises(Malformed):
        ScramClient(SHA_256, "user", CLIENT_NONCE).read(challenge)


def test_a_proof_counts_for_its_own_exchange_only() -> None:
    other = ScramServer(SHA_256)
    other.first(CLIENT_FIRST)
    other.challenge(pencil(SHA_256), "another")
    with pytest.raises(Malformed, match="SASL"):
        other.final(CLIENT_FINAL)
    forged = CLIENT_FINAL.replace(SERVER_NONCE.encode(), b"another")
    with pytest.raises(LoginRefused) as refused:
        other.final(forged)
    assert refused.value.reason == "the proof is wrong"


def test_a_guessed_proof_is_refused_each_time() -> None:
    """A comparison of one byte of the key would take one proof in 256."""
    server, head = begun(), CLIENT_FINAL[: CLIENT_FINAL.index(b",p=") + 3]
    for number in range(3_000):
        proof = base64.b64encode(SHA_256.hash(number.to_bytes(4)))
        with pytest.raises(LoginRefused):
            server.final(head + proof)


def test_the_channel_binding_is_that_of_the_first_message() -> None:
    """A man in the middle that took the client's binding flag away is seen (RFC 5802, 6)."""
    server = ScramServer(SHA_256)
    server.first(CLIENT_FIRST.replace(b"n,,", b"y,,"))
    server.challenge(pencil(SHA_256), SERVER_NONCE)
    with pytest.raises(Malformed) as refused:
        server.final(CLIENT_FINAL)
    assert "channel binding" in refused.value.reason


def test_a_client_may_not_act_for_another_user() -> None:
    assert ScramServer(SHA_256).first(b"n,a=user,n=user,r=x").user == "user"
    with pytest.raises(LoginRefused, match="authorization id that is different"):
        ScramServer(SHA_256).first(b"n,a=admin,n=user,r=x")


def test_a_delegation_token_says_so_in_the_first_message() -> None:
    client = ScramClient(SHA_256, "id", "nonce", {"tokenauth": "true"})
    assert client.first() == b"n,,n=id,r=nonce,tokenauth=true"
    assert ScramServer(SHA_256).first(client.first()).token_auth
    assert not ScramServer(SHA_256).first(b"n,,n=id,r=nonce,tokenauth=false").token_auth


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,",
        b"p=tls-unique,,n=user,r=x",
        b"n,user,n=user,r=x",
        b"n,,n=,r=x",
        b"n,,n=user,r=",
        b"n,,r=x,n=user",
        b"n,,m=1,n=user,r=x",
        b"n,,n=us=er,r=x",
        b"n,,n=user,r=x y",
        b"n,,n=us\0er,r=x",
        b"n,,n=\xff,r=x",
        b"n,,n=user,r=x," + b",".join(b"a=b" for _ in range(40)),
    ],
)
def test_a_malformed_first_message_is_refused(message: bytes) -> None:
    with pytest.raises(Malformed):
        ScramServer(SHA_256).first(message)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        CLIENT_FINAL[:-1],
        CLIENT_FINAL + b",x=1",
        CLIENT_FINAL.replace(b"p=", b"p=AAAA"),
        CLIENT_FINAL.replace(b"p=dHzb", b"p=d zb"),
        b"r=x,c=biws,p=AAAA",
        b"c=biws,r=" + (CLIENT_NONCE + SERVER_NONCE).encode() + b",p=AAAA",
    ],
)
def test_a_malformed_final_message_is_refused(message: bytes) -> None:
    with pytest.raises(Malformed):
        begun().final(message)


@given(st.text(min_size=1, alphabet=st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
def test_every_name_comes_back_from_its_quoted_form(name: str) -> None:
    assert "," not in quoted(name)
    assert unquoted(quoted(name)) == name
    first = ScramServer(SHA_256).first(ScramClient(SHA_256, name, "nonce").first())
    assert first.user == name


@settings(max_examples=300)
@given(st.data())
def test_whatever_bytes_come_the_answer_is_a_refusal(data: st.DataObject) -> None:
    """Nobody gets in by changed bytes, and nothing but ``LoginRefused`` is raised."""
    message = bytearray(data.draw(st.sampled_from([CLIENT_FIRST, CLIENT_FINAL])))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(message) - 1))
        message[place : place + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
    if bytes(message) != CLIENT_FINAL:
        with pytest.raises(LoginRefused):
            begun().final(bytes(message))
    try:
        first = ScramServer(SHA_256).first(bytes(message))
    except LoginRefused:
        return
    assert first.user


def test_nothing_secret_is_printed() -> None:
    assert "hidden" in repr(pencil(SHA_256))
    assert str(SALT) not in repr(pencil(SHA_256))
