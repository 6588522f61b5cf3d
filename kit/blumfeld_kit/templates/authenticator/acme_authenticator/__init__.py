"""A login for Blumfeld."""

from .authenticator import AcmeAuthenticator as AcmeAuthenticator
from .plugin import Plugin as Plugin
from .users import Users as Users
