"""Certificates, a bearer token and its issuer's keys for one run, in files of a folder."""

from __future__ import annotations

import json
import time
from pathlib import Path

from campaigns.certificates import Authority, private

ISSUER, AUDIENCE = "https://issuer.example", "brokers"
USER, PASSWORD = "alice", "correct horse"
TOKEN_S = 86_400


def make_certificates(folder: Path) -> None:
    """Write ``signer.pem``; for the node and the client NAME.key and NAME.pem, which the signer has signed; and
    ``node.both.pem``.
    """
    signer = Authority()
    (folder / "signer.pem").write_bytes(signer.pem)
    leaves = {name: signer.leaf(("CN", name)) for name in ("node", USER)}
    for name, leaf in leaves.items():
        private(folder / f"{name}.key", leaf.key_pem())
        private(folder / f"{name}.pem", leaf.certificate_pem)
    private(folder / "node.both.pem", leaves["node"].pem())


def make_token(folder: Path) -> None:
    """Write the issuer's public key as ``keys.json``, and a token of the user as ``token``."""
    from joserfc import jwt
    from joserfc.jwk import RSAKey

    key = RSAKey.generate_key(2048, {"kid": "one"})
    (folder / "keys.json").write_text(
        json.dumps({"keys": [key.as_dict(private=False, kid="one", alg="RS256")]})
    )
    now_s = int(time.time())
    claims = {
        "sub": USER,
        "iss": ISSUER,
        "aud": AUDIENCE,
        "iat": now_s,
        "exp": now_s + TOKEN_S,
        "scope": "kafka",
    }
    (folder / "token").write_text(jwt.encode({"alg": "RS256", "kid": "one"}, claims, key))
