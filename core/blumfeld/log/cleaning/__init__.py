"""The log cleaner: which log it takes next, which records it keeps, and its two passes. Pure."""

from typing import TYPE_CHECKING

from blumfeld.moved import old_names

if not TYPE_CHECKING:
    __getattr__ = old_names(__name__)
