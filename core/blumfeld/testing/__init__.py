"""For tests: a real broker in this process. The contract kits and the simulation are ``blumfeld_kit``, of the
distribution blumfeld-kit.

Importing this costs nothing; each name is imported when it is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from blumfeld.moved import old_names

if TYPE_CHECKING:
    from blumfeld.testing.embedded import DefectError, EmbeddedBroker

__all__ = ["DefectError", "EmbeddedBroker"]

__getattr__ = old_names(__name__, lazy=dict.fromkeys(__all__, "blumfeld.testing.embedded"))
