"""The plug-ins of one node, behind pluggy: a making hook is called only for the plug-in that the manifest names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pluggy

from blumfeld.kernel.composition import NodeComposition
from blumfeld.spi.hooks import Hooks, Plugin
from blumfeld.wire.errors import PluginContractError


class PlannedPlugin(msgspec.Struct, frozen=True, kw_only=True):
    """A plug-in that the manifest names, loaded but not made."""

    role: str
    """The section; ``local_storage`` for a storage that another wraps."""
    name: str
    path: str
    """Where the manifest names it: ``groups.plugins[1]``."""
    plugin_class: type[Plugin]
    options: msgspec.Struct


class PluginSet:
    """Made once for a node: an instance of each planned plug-in.

    :raises PluginContractError: a plug-in can't be made, or a hook of it has arguments that the spec doesn't
    """

    def __init__(self, planned: Sequence[PlannedPlugin]) -> None:
        self._manager = pluggy.PluginManager("blumfeld")
        self._manager.add_hookspecs(Hooks)
        self._made: list[tuple[PlannedPlugin, Plugin]] = []
        for plan in planned:
            try:
                instance = plan.plugin_class()
                self._manager.register(instance, name=f"{plan.role}:{plan.name}")
            except (TypeError, pluggy.PluginValidationError) as error:
                message = "; ".join(str(error).splitlines())
                raise PluginContractError(f"plug-in {plan.name}: {message}") from error
            self._made.append((plan, instance))

    @property
    def hook(self) -> Any:
        """pluggy's relay, for announcements."""
        return self._manager.hook

    def of_role(self, role: str) -> list[PlannedPlugin]:
        """The plug-ins of one role, in the manifest's order."""
        return [plan for plan, _ in self._made if plan.role == role]

    def make(self, plan: PlannedPlugin, hook_name: str, composition: NodeComposition) -> Any:
        """Call one making hook of one plug-in.

        :raises PluginContractError: it gave nothing
        """
        part = self._only(plan)(hook_name)(composition=composition.view(plan.options))
        if part is None:
            raise PluginContractError(
                f"plug-in {plan.name} fills {plan.role}, but its {hook_name} made nothing"
            )
        return part

    def call(self, plan: PlannedPlugin, hook_name: str, **arguments: Any) -> Any:
        """Call one hook of one plug-in; what it gave, or ``None``/``[]`` where it doesn't implement it."""
        return self._only(plan)(hook_name)(**arguments)

    def each(
        self, hook_name: str, composition: NodeComposition | None = None
    ) -> Iterator[tuple[PlannedPlugin, Any]]:
        """Call a hook of every plug-in that has it, in the order of the plan; (plug-in, what it gave)."""
        for plan, instance in self._made:
            if not hasattr(instance, hook_name):
                continue
            arguments = {} if composition is None else {"composition": composition.view(plan.options)}
            for answer in self._only(plan)(hook_name)(**arguments):
                yield plan, answer

    def _only(self, plan: PlannedPlugin) -> Any:
        others = [instance for other, instance in self._made if other is not plan]

        def caller(hook_name: str) -> Any:
            return self._manager.subset_hook_caller(hook_name, remove_plugins=others)

        return caller
