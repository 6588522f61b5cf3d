"""An object store for Blumfeld's tiered storage."""

from .plugin import Plugin as Plugin
from .store import AcmeObjectStore as AcmeObjectStore
