"""A server-side assignor for Blumfeld."""

from .assignor import AcmeAssignor as AcmeAssignor
from .plugin import Plugin as Plugin
