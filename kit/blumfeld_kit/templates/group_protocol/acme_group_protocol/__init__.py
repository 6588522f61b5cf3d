"""A group protocol for Blumfeld."""

from .plugin import Plugin as Plugin
from .protocol import AcmeGroupProtocol as AcmeGroupProtocol
