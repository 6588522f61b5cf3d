"""The description of a plan. It makes the node and opens nothing."""

from __future__ import annotations

from typing import Any, NamedTuple

from blumfeld.kernel.composing.plan import Plan
from blumfeld.kernel.description.document import PlanDocument, document_of
from blumfeld.kernel.description.text import Place, document_text, place_of
from blumfeld.kernel.node import MakeBroker, Node, make_broker
from blumfeld.kernel.runtime.short_lived_runtime import short_lived_runtime
from blumfeld.kernel.watching.event_log import EventLogs, Render


class Description(NamedTuple):
    """What the node of a plan promises, and where it would run."""

    document: PlanDocument
    place: Place

    @property
    def text(self) -> str:
        """The description, for a person."""
        return document_text(self.document, self.place)


async def describe(plan: Plan, make_broker: MakeBroker = make_broker) -> Description:
    """Returns the description. Call it inside a running loop.

    :raises PluginContractError: a plug-in broke its contract while parts were made
    :raises ManifestError: a plug-in can't do what ``[config]`` says, or refuses the composition
    """
    async with short_lived_runtime() as runtime:
        warnings: list[str] = []
        logs = EventLogs(lambda: _collecting(warnings), "warning")
        node = Node(plan, runtime, logs, make_broker)
        logs.flush()
        return Description(
            document_of(plan, node.composition, node.broker),
            place_of(plan, node.composition.transport.driver(), warnings),
        )


def _collecting(warnings: list[str]) -> Render:
    """Returns what collects events as lines for a person."""

    def render(_time_ms: int, _level: str, _logger: str, event: str, values: dict[str, Any]) -> None:
        warnings.append("; ".join([event, *(f"{name}: {value}" for name, value in values.items())]))

    return render
