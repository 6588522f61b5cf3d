"""A decoder for Blumfeld's archive."""

from .decoder import AcmeDecoder as AcmeDecoder
from .plugin import Plugin as Plugin
