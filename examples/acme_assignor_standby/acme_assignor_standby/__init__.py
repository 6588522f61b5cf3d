"""A server-side assignor for Blumfeld: each topic has one reader."""

from acme_assignor_standby.plugin import Plugin
from acme_assignor_standby.standby import StandbyAssignor

__all__ = ["Plugin", "StandbyAssignor"]
