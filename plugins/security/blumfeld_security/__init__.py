"""TLS, logins, ACLs, delegation tokens, and the audit of verdicts."""

from blumfeld_security.plugin import Plugin

__all__ = ["Plugin"]
