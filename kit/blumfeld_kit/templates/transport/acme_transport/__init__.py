"""A transport for Blumfeld."""

from .plugin import Plugin as Plugin
from .transport import AcmeTransport as AcmeTransport
