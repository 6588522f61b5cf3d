"""An observer for Blumfeld."""

from .observer import AcmeObserver as AcmeObserver
from .plugin import Plugin as Plugin
