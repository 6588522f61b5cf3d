"""A login for Blumfeld: PLAIN, whose password is a code that changes every 30 seconds."""

from acme_authenticator_totp.plugin import Options, Plugin

__all__ = ["Options", "Plugin"]
