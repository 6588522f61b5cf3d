"""Wrong logins of each way in: what nobody may get by with, and what the node must say of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import attrs

from campaigns.clients.access import TOKEN, Access
from campaigns.secured.cluster import SecuredCluster
from campaigns.secured.identities import STRANGER


@attrs.frozen
class Wrong:
    """A wrong login."""

    access: Access
    said: tuple[str, ...]
    """The log of a node has one of these; none where the client itself ends the connection, perhaps without a word."""


def wrong_logins(cluster: SecuredCluster, access: Access) -> dict[str, Wrong]:
    """Return what is wrong to try in place of a right access, by name."""
    found = _wrong_users(cluster, access)
    if access.certificate:
        found |= _wrong_certificates(cluster, access)
    if access.by_tls:
        clear = access.protocol.replace("SSL", "PLAINTEXT")
        found["plain text to TLS"] = Wrong(
            replace(access, protocol=clear), ("the client speaks plain text: its security.protocol must be",)
        )
        found["a signer that the client doesn't trust"] = Wrong(
            replace(access, ca=str(cluster.folder / "nobody.pem")), ()
        )
    else:
        found["TLS to plain text"] = Wrong(
            replace(access, protocol="SASL_SSL", ca=str(cluster.folder / "signer.pem")),
            ("TLS came to a listener that speaks SASL_PLAINTEXT",),
        )
    return found


def _wrong_users(cluster: SecuredCluster, access: Access) -> dict[str, Wrong]:
    if not access.mechanism:
        return {}
    if access.mechanism == TOKEN:
        forged = replace(access, token_file=str(cluster.folder / "forged"))
        return {"a forged token": Wrong(forged, ("the signature is wrong",))}
    wrong_password = Wrong(replace(access, password="wrong"), ("wrong password", "the proof is wrong"))
    return {
        "a wrong password": wrong_password,
        "an unknown user": Wrong(replace(access, user="nobody"), ("no such user",)),
        "a user without rights": Wrong(replace(access, user=STRANGER), (f"principal=User:{STRANGER}",)),
    }


def _wrong_certificates(cluster: SecuredCluster, access: Access) -> Mapping[str, Wrong]:
    kinds = {
        "an expired certificate": ("expired", "certificate has expired"),
        "a foreign certificate": ("foreign", "no signer in this node's truststore has signed it"),
    }
    found = {
        name: Wrong(replace(access, **cluster.shown(file)), (said,)) for name, (file, said) in kinds.items()
    }
    found["no certificate"] = Wrong(
        replace(access, certificate="", key=""), ("the client sent no certificate",)
    )
    return found
