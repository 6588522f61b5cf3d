"""JWTs: the signature, the keys, the claims; tokens that were made to confuse."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any

import pytest

pytest.importorskip("joserfc")

from hypothesis import given
from hypothesis import strategies as st
from joserfc import jws
from joserfc.jwk import ECKey, OctKey, RSAKey

from blumfeld_security.sasl.authenticators import InsufficientScope, InvalidToken
from blumfeld_security.sasl.bearer_tokens import TokenRules, key_id, read_keys, verified

NOW_S = 1_700_000_000
RSA = RSAKey.generate_key(2048, {"kid": "rsa"})
EC = ECKey.generate_key("P-256", {"kid": "ec"})
STRANGER = RSAKey.generate_key(2048, {"kid": "rsa"})
JWKS = json.dumps({"keys": [key.as_dict(private=False) for key in (RSA, EC)]}).encode()
KEYS = read_keys(JWKS)
CLAIMS = {"sub": "alice", "iat": NOW_S, "exp": NOW_S + 600, "iss": "https://issuer", "aud": "kafka"}
RULES = TokenRules(issuer="https://issuer", audiences=("kafka", "other"))


def signed(key: Any, algorithm: str, claims: Any = None, **header: Any) -> str:
    document = json.dumps(CLAIMS if claims is None else claims).encode()
    token: str = jws.serialize_compact(
        {"alg": algorithm, "kid": key.kid, **header},
        document,
        key,
        registry=jws.JWSRegistry(algorithms=[algorithm]),
    )
    return token


def user(token: str, rules: TokenRules = RULES, now_s: float = NOW_S) -> tuple[str, float]:
    meaning = verified(token, KEYS, rules, int(now_s * 1000))
    return str(meaning.principal), meaning.lifetime_ms


def refused(token: str, rules: TokenRules = RULES, now_s: float = NOW_S) -> str:
    with pytest.raises(InvalidToken) as refusal:
        verified(token, KEYS, rules, int(now_s * 1000))
    assert token[-20:] not in str(refusal.value)
    return str(refusal.value)


def part(document: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(document).encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    ("key", "algorithm"),
    [(RSA, "RS256"), (RSA, "RS512"), (RSA, "PS256"), (EC, "ES256")],
    ids=["RS256", "RS512", "PS256", "ES256"],
)
def test_a_token_of_the_issuer_names_its_user_and_its_end(key: Any, algorithm: str) -> None:
    token = signed(key, algorithm)
    assert user(token) == ("User:alice", 600_000)
    assert key_id(token) == key.kid


def test_a_token_without_a_signature_is_refused() -> None:
    for algorithm in ("none", "None", "NONE", "nOnE", ""):
        header = part({"alg": algorithm, "kid": "rsa"})
        assert "allowed for this key" in refused(f"{header}.{part(CLAIMS)}.")


def test_a_public_key_is_no_secret_of_an_hmac() -> None:
    """The confusion of keys: HS256 with the issuer's public key as its secret."""
    pem = RSA.as_pem(private=False)
    for secret in (pem, pem.strip(), JWKS, RSA.as_der(private=False)):
        text = f"{part({'alg': 'HS256', 'kid': 'rsa'})}.{part(CLAIMS)}"
        signature = hmac.digest(secret, text.encode(), hashlib.sha256)
        assert "HS256" in refused(f"{text}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}")


def test_a_key_signs_by_the_algorithms_of_its_own_type_only() -> None:
    for token in (signed(EC, "ES256", kid="rsa"), signed(RSA, "RS256", kid="ec")):
        assert "allowed for this key" in refused(token)


def test_a_strangers_key_of_the_same_name_is_refused() -> None:
    assert "signature is wrong" in refused(signed(STRANGER, "RS256"))
    jwk = STRANGER.as_dict(private=False)
    assert "signature is wrong" in refused(signed(STRANGER, "RS256", jwk=jwk)), (
        "a key in the token counts nothing"
    )


def test_changed_claims_are_refused() -> None:
    header, _, signature = signed(RSA, "RS256").split(".")
    assert "signature is wrong" in refused(f"{header}.{part({**CLAIMS, 'sub': 'admin'})}.{signature}")


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"exp": NOW_S - 31}, "expired"),
        ({"exp": None}, "'exp'"),
        ({"exp": "never"}, "'exp'"),
        ({"exp": True}, "'exp'"),
        ({"exp": 1e30}, "'exp'"),
        ({"iat": None}, "'iat'"),
        ({"iat": NOW_S + 31}, "not valid yet"),
        ({"nbf": NOW_S + 31}, "not valid yet"),
        ({"iss": "https://other"}, "another issuer"),
        ({"iss": None}, "another issuer"),
        ({"aud": "mine"}, "another audience"),
        ({"aud": ["mine", 7]}, "another audience"),
        ({"aud": None}, "another audience"),
        ({"sub": None}, "'sub'"),
        ({"sub": " "}, "'sub'"),
        ({"sub": ["alice"]}, "'sub'"),
    ],
)
def test_claims_that_do_not_fit_are_refused(changed: dict[str, Any], why: str) -> None:
    assert why in refused(signed(RSA, "RS256", {**CLAIMS, **changed}))


def test_a_token_without_an_issuer_or_an_audience_is_refused() -> None:
    for claim in ("iss", "aud"):
        claims = {name: value for name, value in CLAIMS.items() if name != claim}
        assert "another" in refused(signed(RSA, "RS256", claims))


def test_clocks_may_differ_a_little() -> None:
    assert user(signed(RSA, "RS256"), now_s=NOW_S + 629.9)
    assert "expired" in refused(signed(RSA, "RS256"), now_s=NOW_S + 630)
    assert user(signed(RSA, "RS256"), now_s=NOW_S - 30)


def test_rules_that_are_not_given_ask_for_nothing() -> None:
    token = signed(RSA, "RS256", {"name": "bob", "iat": NOW_S, "exp": NOW_S + 1})
    assert user(token, TokenRules(subject_claim="name"))[0] == "User:bob"


def test_a_scope_that_is_missing_is_another_refusal() -> None:
    rules = TokenRules(scopes=("read", "write"), scope_claim="scp")
    assert user(signed(RSA, "RS256", {**CLAIMS, "scp": "write read"}), rules)
    assert user(signed(RSA, "RS256", {**CLAIMS, "scp": ["read", "write", "more"]}), rules)
    for scope in ("read", ["read"], None, 7):
        with pytest.raises(InsufficientScope):
            user(signed(RSA, "RS256", {**CLAIMS, "scp": scope}), rules)


@pytest.mark.parametrize(
    "token",
    [
        "",
        "a.b",
        "a.b.c.d",
        "....",
        "a.b.c",
        f"{part([])}.{part({})}.",
        f"{part('x')}.{part({})}.",
        "é.b.c",
        "W" * 70_000,
    ],
)
def test_what_is_no_token_is_refused(token: str) -> None:
    with pytest.raises(InvalidToken):
        verified(token, KEYS, RULES, NOW_S * 1000)


def test_a_critical_header_that_is_unknown_is_refused() -> None:
    header = {"alg": "RS256", "kid": "rsa", "crit": ["b64"], "b64": False}
    with pytest.raises(InvalidToken):
        verified(f"{part(header)}.{part(CLAIMS)}.{'A' * 342}", KEYS, RULES, NOW_S * 1000)


@given(
    st.text()
    | st.lists(st.text(), min_size=3, max_size=3).map(".".join)
    | st.binary().map(
        lambda b: (
            f"{part({'alg': 'RS256', 'kid': 'rsa'})}.{part(CLAIMS)}.{base64.urlsafe_b64encode(b).decode()}"
        )
    )
)
def test_any_text_is_refused(token: str) -> None:
    with pytest.raises(InvalidToken):
        verified(token, KEYS, RULES, NOW_S * 1000)


def test_a_document_of_keys_keeps_those_that_may_sign() -> None:
    small = {"kty": "RSA", "kid": "small", "n": "AQAB", "e": "AQAB"}
    secret = OctKey.generate_key(256, {"kid": "secret"}).as_dict()
    sealing = {**RSA.as_dict(private=False), "kid": "sealing", "use": "enc"}
    fixed = {**RSA.as_dict(private=False), "kid": "fixed", "alg": "RS512"}
    document = {"keys": [small, secret, sealing, fixed, {"kty": "new"}, EC.as_dict(private=False)]}
    keys = read_keys(json.dumps(document).encode())
    assert {name: key.algorithms for name, key in keys.items()} == {"fixed": ("RS512",), "ec": ("ES256",)}


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"keys": 7}', b'{"keys": [7]}', b'{"keys": []}'])
def test_a_document_without_keys_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"JWKS|public key"):
        read_keys(data)


def test_a_token_without_a_key_id_is_held_against_the_only_key() -> None:
    only = read_keys(json.dumps({"keys": [RSA.as_dict(private=False)]}).encode())
    bare = jws.serialize_compact({"alg": "RS256"}, json.dumps(CLAIMS).encode(), RSA)
    assert str(verified(bare, only, RULES, NOW_S * 1000).principal) == "User:alice"
    assert "no key of the issuer" in refused(bare)
