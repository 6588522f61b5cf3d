"""Wrong logins of each way in: what nobody may get by with, and what the node must say of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import attrs

from campaigns.clients.access import TOKEN, Access
from campaigns.secured.cluster import SecuredCluster
from campaigns.secured.identities import STRANGER
from campaigns.secured.issuer import EXPIRED, FORGED, TOKEN_PATH


@attrs.frozen
class Wrong:
    """A wrong login."""

    access: Access
    said: tuple[str, ...]
    """The log of a node has one of these; none where the client itself ends the connection, perhaps without a word."""
    reported: str
    """A client that reports refusals says this, in the words of Java's."""


SASL_FAILED = "SaslAuthenticationException"
TLS_FAILED = "SslAuthenticationException"
CUT_OFF = "disconnected|terminated during authentication"
"""The node closes without a word what speaks another protocol."""


def wrong_logins(cluster: SecuredCluster, access: Access) -> dict[str, Wrong]:
    """Return what is wrong to try in place of a right access, by name."""
    found = _wrong_users(cluster, access)
    if access.certificate:
        found |= _wrong_certificates(cluster, access)
    if access.by_tls:
        clear = access.protocol.replace("SSL", "PLAINTEXT")
        found["plain text to TLS"] = Wrong(
            replace(access, protocol=clear),
            ("the client speaks plain text: its security.protocol must be",),
            CUT_OFF,
        )
        found["a signer that the client doesn't trust"] = Wrong(
            replace(access, ca=str(cluster.folder / "nobody.pem")), (), f"{TLS_FAILED}|PKIX path"
        )
    else:
        in_tls = access.protocol.replace("PLAINTEXT", "SSL")
        found["TLS to plain text"] = Wrong(
            replace(access, protocol=in_tls, ca=str(cluster.folder / "signer.pem")),
            (f"TLS came to a listener that speaks {access.protocol}",),
            CUT_OFF,
        )
    return found


def _wrong_users(cluster: SecuredCluster, access: Access) -> dict[str, Wrong]:
    if not access.mechanism:
        return {}
    if access.endpoint:
        return _wrong_tokens(access)
    if access.mechanism == TOKEN:
        forged = replace(access, token_file=str(cluster.folder / "forged"))
        return {"a forged token": Wrong(forged, ("the signature is wrong",), SASL_FAILED)}
    wrong_password, no_user = replace(access, password="wrong"), replace(access, user="nobody")
    return {
        "a wrong password": Wrong(wrong_password, ("wrong password", "the proof is wrong"), SASL_FAILED),
        "an unknown user": Wrong(no_user, ("no such user",), SASL_FAILED),
        "a user without rights": Wrong(
            replace(access, user=STRANGER), (f"principal=User:{STRANGER}",), "TopicAuthorizationException"
        ),
    }


def _wrong_tokens(access: Access) -> dict[str, Wrong]:
    """Tokens that an issuer should not give. A client may see by itself that one has ended, or that it got none."""
    issuer = access.endpoint.removesuffix(TOKEN_PATH)
    return {
        "a forged token": Wrong(
            replace(access, endpoint=issuer + FORGED), ("the signature is wrong",), SASL_FAILED
        ),
        "an expired token": Wrong(replace(access, endpoint=issuer + EXPIRED), (), SASL_FAILED),
        "a wrong secret": Wrong(replace(access, password="wrong"), (), "401"),
    }


def _wrong_certificates(cluster: SecuredCluster, access: Access) -> Mapping[str, Wrong]:
    kinds = {
        "an expired certificate": ("expired", "certificate has expired", "certificate_expired"),
        "a foreign certificate": (
            "foreign",
            "no signer in this node's truststore has signed it",
            "unknown_ca",
        ),
    }
    found = {
        name: Wrong(replace(access, **cluster.shown(file)), (said,), f"{TLS_FAILED}.*{alert}")
        for name, (file, said, alert) in kinds.items()
    }
    found["no certificate"] = Wrong(
        replace(access, certificate="", key=""),
        ("the client sent no certificate",),
        f"{TLS_FAILED}.*certificate_required",
    )
    return found
