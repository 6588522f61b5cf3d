"""The meaning of a bearer token: a JWT that an issuer signed (RFC 7519), held against the issuer's public keys. Pure.

Only signatures by asymmetric keys count, each by the algorithms of its own type. So a token without a signature
(``alg: none``) is refused, and so is one whose HMAC was made with a public key (``alg: HS256``).
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any

import msgspec
from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, RSAKey

from blumfeld.spi.context import Principal
from blumfeld_security.sasl.authenticators import BearerUser, InsufficientScope, InvalidToken

TOKEN_BYTES_MAX = 65_536
RSA_BITS_MIN = 2_048
_RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_BY_CURVE = {"P-256": ("ES256",), "P-384": ("ES384",), "P-521": ("ES512",)}


class IssuerKey(msgspec.Struct, frozen=True):
    """A public key, and the algorithms that it may be used with."""

    key: Any
    algorithms: tuple[str, ...]


Keys = Mapping[str, IssuerKey]
"""Key id → key. A key without an id has the empty one."""


class TokenRules(msgspec.Struct, frozen=True, kw_only=True):
    """What a token must say."""

    issuer: str | None = None
    """``sasl.oauthbearer.expected.issuer``"""
    audiences: tuple[str, ...] = ()
    """``sasl.oauthbearer.expected.audience``: the token names one of them."""
    scopes: tuple[str, ...] = ()
    """The token has all of them."""
    scope_claim: str = "scope"
    """``sasl.oauthbearer.scope.claim.name``"""
    subject_claim: str = "sub"
    """``sasl.oauthbearer.sub.claim.name``"""
    skew_seconds: int = 30
    """``sasl.oauthbearer.clock.skew.seconds``"""


def read_keys(data: bytes) -> dict[str, IssuerKey]:
    """Returns the keys of a JWKS document that may sign tokens. Others are left out: symmetric ones, those for
    encryption, those of a type that isn't known here.

    :raises ValueError: it is no such document, or has no such key
    """
    try:
        document = json.loads(data)
        entries = document["keys"]
        usable = [entry for entry in entries if entry.get("use", "sig") == "sig"]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise ValueError('no JWKS document: allowed is {"keys": […]}') from None
    keys = {}
    for entry in usable:
        key = _key(entry)
        if key is not None:
            keys[str(entry.get("kid", ""))] = key
    if not keys:
        raise ValueError("no public key that can sign a token: RSA of 2048 bits or more, or EC")
    return keys


def _key(entry: dict[str, Any]) -> IssuerKey | None:
    kind: Any = {"RSA": RSAKey, "EC": ECKey}.get(str(entry.get("kty")))
    if kind is None:
        return None
    algorithms: tuple[str, ...] = _RSA if kind is RSAKey else _BY_CURVE.get(str(entry.get("crv")), ())
    if "alg" in entry:
        algorithms = tuple(each for each in algorithms if each == entry["alg"])
    try:
        key = kind.import_key(entry)
        if isinstance(key, RSAKey) and key.raw_value.key_size < RSA_BITS_MIN:
            return None
    except (JoseError, ValueError):
        return None
    return IssuerKey(key, algorithms) if algorithms else None


def key_id(token: str) -> str:
    """Returns the id of the key that a token names; "" if it names none.

    :raises InvalidToken: it is no signed JWT
    """
    return str(_header(token).get("kid", ""))


def verified(token: str, keys: Keys, rules: TokenRules, now_ms: int) -> BearerUser:
    """Returns the meaning of a token.

    :raises InvalidToken: it isn't signed by one of the keys, has ended or not begun, or says something else than the
        rules ask for
    """
    header = _header(token)
    key = _chosen(keys, str(header.get("kid", "")))
    if header.get("alg") not in key.algorithms:
        allowed = ", ".join(key.algorithms)
        raise InvalidToken(f"signed by {str(header.get('alg'))[:20]!r}; allowed for this key: {allowed}")
    registry = jws.JWSRegistry(algorithms=list(key.algorithms))
    try:
        payload = jws.deserialize_compact(token, key.key, registry=registry).payload
        claims = json.loads(payload)
    except (JoseError, ValueError):
        raise InvalidToken("the signature is wrong, or the token malformed") from None
    if not isinstance(claims, dict):
        raise InvalidToken("the token has no claims")
    return _meaning(claims, rules, now_ms)


def _chosen(keys: Keys, named: str) -> IssuerKey:
    if named in keys:
        return keys[named]
    if not named and len(keys) == 1:
        return next(iter(keys.values()))
    raise InvalidToken(f"no key of the issuer has the id {named[:60]!r}")


def _meaning(claims: dict[str, Any], rules: TokenRules, now_ms: int) -> BearerUser:
    now_s = now_ms / 1000
    ends, issued = _seconds(claims, "exp"), _seconds(claims, "iat")
    if now_s >= ends + rules.skew_seconds:
        raise InvalidToken("the token has expired")
    if max(issued, _seconds(claims, "nbf") if "nbf" in claims else issued) > now_s + rules.skew_seconds:
        raise InvalidToken("the token is not valid yet")
    if rules.issuer is not None and claims.get("iss") != rules.issuer:
        raise InvalidToken(f"another issuer than {rules.issuer!r}")
    if rules.audiences and not set(rules.audiences) & set(_words(claims.get("aud"), split=False)):
        raise InvalidToken(f"another audience than {', '.join(rules.audiences)}")
    subject = claims.get(rules.subject_claim)
    if not isinstance(subject, str) or not subject.strip():
        raise InvalidToken(f"no claim {rules.subject_claim!r} with the name of the user")
    if not set(rules.scopes) <= set(_words(claims.get(rules.scope_claim), split=True)):
        raise InsufficientScope(f"the token hasn't the scope {' '.join(rules.scopes)}")
    return BearerUser(Principal(subject), ends * 1000 - now_ms)


def _seconds(claims: dict[str, Any], name: str) -> float:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e11:
        raise InvalidToken(f"no claim {name!r} with a time")
    return float(value)


def _words(claim: Any, *, split: bool) -> list[str]:
    """Returns the words of a claim that is a text or a list of texts."""
    if isinstance(claim, str):
        return claim.split() if split else [claim]
    return [each for each in claim if isinstance(each, str)] if isinstance(claim, list) else []


def _header(token: str) -> dict[str, Any]:
    if len(token) > TOKEN_BYTES_MAX or token.count(".") != 2:
        raise InvalidToken("no signed JWT")
    encoded = token.partition(".")[0]
    try:
        header = json.loads(base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        raise InvalidToken("no signed JWT") from None
    if not isinstance(header, dict):
        raise InvalidToken("no signed JWT")
    return header
