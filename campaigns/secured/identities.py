"""Certificates and users for one run, in files of a folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from cryptography.hazmat.primitives import serialization

from campaigns.certificates import DER, Authority, Leaf, private

ISSUER, AUDIENCE = "https://issuer.example", "brokers"
USER, STRANGER, NODE = "alice", "mallory", "node"
"""A user with rights, one that logs in and has none, and the nodes themselves."""
PASSWORD = "correct horse"


def make_certificates(folder: Path) -> None:
    """Write ``signer.pem``; for the nodes and the user NAME.key and NAME.pem, which the signer has signed; the user's
    also as ``expired``, and as ``foreign`` from ``nobody.pem``, which no node trusts; and ``node.both.pem``.
    """
    signer, nobody = Authority(), Authority("nobody")
    (folder / "signer.pem").write_bytes(signer.pem)
    (folder / "nobody.pem").write_bytes(nobody.pem)
    leaves = {name: signer.leaf(("CN", name)) for name in (NODE, USER)}
    leaves["expired"] = signer.leaf(("CN", USER), since_days=30, until_days=-1)
    leaves["foreign"] = nobody.leaf(("CN", USER))
    for name, leaf in leaves.items():
        private(folder / f"{name}.key", leaf.key_pem())
        private(folder / f"{name}.pem", leaf.certificate_pem)
    node = leaves[NODE]
    private(folder / "node.both.pem", node.pem())
    _make_other_forms(folder, node, signer)


def _make_other_forms(folder: Path, node: Leaf, signer: Authority) -> None:
    """The nodes' own certificate in DER and PKCS12, for clients that are super users by it."""
    none = serialization.NoEncryption()
    key = node.key.private_bytes(DER, serialization.PrivateFormat.PKCS8, none)
    for name, content in (
        ("node.der", node.der),
        ("node.key.der", key),
        ("client.p12", node.p12(PASSWORD, signer.certificate)),
    ):
        private(folder / name, content)
    (folder / "signer.der").write_bytes(signer.certificate.public_bytes(DER))


def make_users(folder: Path) -> None:
    """Write the users of PLAIN as ``users.toml``, and the login of the nodes as ``login.toml``."""
    hashed = ""
    for user in (USER, STRANGER, NODE):
        command = [sys.executable, "-m", "blumfeld.cli.main", "security", "hash-password", "--user", user]
        done = subprocess.run(command, input=PASSWORD, capture_output=True, text=True, check=True, timeout=60)
        hashed += done.stdout
    private(folder / "users.toml", f"[users]\n{hashed}".encode())
    private(folder / "login.toml", f'user = "{NODE}"\npassword = "{PASSWORD}"\n'.encode())
