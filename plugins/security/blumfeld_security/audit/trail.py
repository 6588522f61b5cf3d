"""The audit: a line of the log for a verdict. It names the principal, its address, the operation and the resource, and
never a secret or a record.

``denied`` writes refusals, ``sampled`` also every hundredth allowed verdict, ``all`` every verdict. A connection
remembers what it was allowed until the rights change, so it has one allowed verdict for many requests. Refusals come in
floods. Equal ones have two lines an interval, and the second line has their number
(:class:`~blumfeld.spi.repeated_events.RepeatedEvents`).
"""

from __future__ import annotations

from typing import Literal

import msgspec

from blumfeld.spi.hooks import EventLog, Metric
from blumfeld.spi.repeated_events import RepeatedEvents
from blumfeld.spi.runtime import Runtime

SAMPLE = 100
"""``sampled`` writes one in so many allowed verdicts."""
NAME_CHARACTERS_MAX = 256
"""Characters of a name that a line shows. A client chooses the name: a group's may have 32,767."""


class AuditOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[security.options.audit]``."""

    verdicts: Literal["none", "denied", "sampled", "all"] = "denied"
    """The verdicts that are written."""


class Trail:
    """Writes and counts the verdicts of one node."""

    def __init__(self, options: AuditOptions, events: EventLog, runtime: Runtime) -> None:
        self._events = events
        self._denials = RepeatedEvents(runtime)
        self._writes_denials = options.verdicts != "none"
        self._every_nth_allowed = {"all": 1, "sampled": SAMPLE}.get(options.verdicts, 0)
        self.allowed = 0
        self.denied = 0

    def verdict(
        self, allowed: bool, principal: str, host: str, operation: str, resource_type: str, name: str
    ) -> None:
        """Count a verdict, and write it if its kind is to be written."""
        if allowed:
            self.allowed += 1
            if self._every_nth_allowed and not self.allowed % self._every_nth_allowed:
                self._events.info("allowed", **_values(principal, host, operation, resource_type, name))
            return
        self.denied += 1
        if self._writes_denials:
            self._denials.say(
                self._events.warning,
                "denied",
                (principal, host, operation, resource_type, name),
                **_values(principal, host, operation, resource_type, name),
            )

    def metrics(self) -> tuple[Metric, ...]:
        """Counts of all verdicts, whether or not they have a line."""
        return (
            Metric(
                name="blumfeld_authorizer_verdicts_total",
                help="Questions that the authorizer answered, by verdict. Filters of lists don't count, and a "
                "connection remembers what it was allowed.",
                kind="counter",
                read=lambda: {("allowed",): self.allowed, ("denied",): self.denied},
                labels=("verdict",),
            ),
        )


def _values(principal: str, host: str, operation: str, resource_type: str, name: str) -> dict[str, str]:
    return {
        "principal": _shown(principal),
        "host": host,
        "operation": operation,
        "resource_type": resource_type,
        "resource": _shown(name),
    }


def _shown(name: str) -> str:
    """Returns a client's text as one line that can't be mistaken for another."""
    cut = name if len(name) <= NAME_CHARACTERS_MAX else f"{name[:NAME_CHARACTERS_MAX]}…"
    return cut if cut.isprintable() else repr(cut)
