"""A storage for Blumfeld."""

from .log import AcmeStorageLog as AcmeStorageLog
from .plugin import Plugin as Plugin
from .storage import AcmeStorage as AcmeStorage
