"""The five codecs of a record batch, with a bound on the decompressed size. Pure."""

from typing import TYPE_CHECKING

from blumfeld.moved import old_names

if not TYPE_CHECKING:
    __getattr__ = old_names(__name__)
