"""The options of the plug-in, as ``[security.options]`` has them."""

from __future__ import annotations

from typing import Annotated

import msgspec

from blumfeld_security.audit.trail import AuditOptions
from blumfeld_security.tls.options import TlsOptions

NotNegative = Annotated[int, msgspec.Meta(ge=0)]


class AclOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[security.options.acls]``: what Kafka's StandardAuthorizer reads beside the broker's own keys."""

    super_users: tuple[str, ...] = ()
    """Principals that may do everything: ``User:admin``. Each node of the cluster logs in as one of them."""
    allow_everyone_if_no_acl_found: bool = False
    """Whether everybody may use a resource on which there is no ACL."""


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What Kafka has no key for."""

    acls: AclOptions = AclOptions()
    audit: AuditOptions = AuditOptions()
    tls: TlsOptions = TlsOptions()
    plain_users: str = ""
    """Path of the file with the users of PLAIN: names and hashed passwords."""
    peer_login: str = ""
    """Path of the file with the user and the password by which this node logs in at other nodes."""
    login_ms_max: Annotated[int, msgspec.Meta(ge=1)] = 30_000
    """How long a connection may take to log in."""
    failed_logins_max: NotNegative = 1_000
    """Failed logins of an address in a minute, after which its logins are refused unseen; 0: no limit. A client with a
    wrong password tries again several times a second, and must not shut out its neighbours."""
    oauthbearer_scopes: tuple[str, ...] = ()
    """Scopes that a bearer token must have."""
    oauthbearer_allowed_urls: tuple[str, ...] = ()
    """URLs from which the issuer's keys are taken although they are neither ``https`` nor of this machine."""
    allow_open_controller_listener: bool = False
    """Whether a controller listener without authentication may stand on an address that others reach."""
