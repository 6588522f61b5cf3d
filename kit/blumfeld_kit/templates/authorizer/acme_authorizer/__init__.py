"""An authorizer for Blumfeld."""

from .authorizer import AcmeAuthorizer as AcmeAuthorizer
from .plugin import Plugin as Plugin
