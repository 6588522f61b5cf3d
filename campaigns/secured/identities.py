"""Certificates, a bearer token and its issuer's keys for one run, in files of a folder."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

ISSUER, AUDIENCE = "https://issuer.example", "brokers"
USER, PASSWORD = "alice", "correct horse"
TOKEN_S = 86_400
_EC = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


def make_certificates(folder: Path) -> None:
    """Write ``signer.pem``, and for the node and the client NAME.key and NAME.pem, which the signer has signed."""
    _openssl(
        folder,
        "req",
        "-x509",
        *_EC,
        "-days",
        "2",
        "-keyout",
        "signer.key",
        "-out",
        "signer.pem",
        "-subj",
        "/CN=signer",
    )
    (folder / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    for name in ("node", USER):
        _openssl(folder, "req", *_EC, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        signed = ("-CA", "signer.pem", "-CAkey", "signer.key", "-CAcreateserial", "-days", "2")
        more = ("-extfile", "names", "-out", f"{name}.pem")
        _openssl(folder, "x509", "-req", "-in", f"{name}.csr", *signed, *more)
    both = folder / "node.both.pem"
    both.touch(mode=0o600)
    both.write_text((folder / "node.key").read_text() + (folder / "node.pem").read_text())


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


def _openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True, timeout=60)
