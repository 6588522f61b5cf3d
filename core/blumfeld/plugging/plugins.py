"""The plug-ins of one node. pluggy finds their hooks; a making hook is called only for the plug-in in the manifest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import msgspec
import pluggy

from blumfeld.plugging.errors import closest
from blumfeld.plugging.part_checks import check_given, check_part
from blumfeld.spi.hooks import Composition, CompositionRefused, Hooks, Plugin
from blumfeld.wire.errors import PluginContractError


class PlannedPlugin(msgspec.Struct, frozen=True, kw_only=True):
    """A plug-in that the manifest names: its class is loaded, and no instance is made yet."""

    role: str
    """The manifest's section; ``local_storage`` for a storage that another one wraps."""
    name: str
    path: str
    """The place in the manifest that names it, such as ``groups.plugins[1]``."""
    plugin_class: type[Plugin]
    options: msgspec.Struct


View: TypeAlias = Callable[[Any], Composition]
"""Returns the composition for a plug-in with these options."""
PREFIX = "blumfeld_"
_MARK = "blumfeld_impl"
"""The attribute that ``hookimpl`` sets on a function."""
_KNOWN = tuple(name for name in vars(Hooks) if name.startswith(PREFIX))


class RefusedBy(Exception):  # noqa: N818 - as CompositionRefused
    """A plug-in refused the composition."""

    def __init__(self, plan: PlannedPlugin, refused: CompositionRefused) -> None:
        super().__init__(f"plug-in {plan.name}: {refused}")
        self.plan = plan
        self.refused = refused


class PluginSet:
    """Made once for a node: an instance of each planned plug-in.

    :raises PluginContractError: a plug-in can't be made, a hook of it has arguments that the spec doesn't, or a method
        looks like a hook and is none: its name is misspelled, or ``hookimpl`` was forgotten
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
            if wrong := [*_wrong_hooks(plan.plugin_class)]:
                raise PluginContractError(f"plug-in {plan.name}: {'; '.join(wrong)}")
            self._made.append((plan, instance))

    @property
    def hook(self) -> Any:
        """pluggy's hooks, for announcements."""
        return self._manager.hook

    def of_role(self, role: str) -> list[PlannedPlugin]:
        """Returns the plug-ins of one role, in the manifest's order."""
        return [plan for plan, _ in self._made if plan.role == role]

    def make(self, plan: PlannedPlugin, hook_name: str, view: View) -> Any:
        """Call one making hook of one plug-in. Returns the checked part.

        :raises PluginContractError: it gave nothing, or something that its Protocol would not know
        :raises RefusedBy: the plug-in can't be part of this composition
        """
        try:
            part = self._only(plan)(hook_name)(composition=view(plan.options))
        except CompositionRefused as refused:
            raise RefusedBy(plan, refused) from refused
        if part is None:
            raise PluginContractError(
                f"plug-in {plan.name} fills {plan.role}, but its {hook_name} made nothing"
            )
        check_part(plan.name, hook_name, part)
        return part

    def call(self, plan: PlannedPlugin, hook_name: str, **arguments: Any) -> Any:
        """Call one hook of one plug-in. Returns its result; ``None`` or ``[]`` if the plug-in doesn't implement it."""
        return self._only(plan)(hook_name)(**arguments)

    def each(self, hook_name: str, view: View | None = None) -> Iterator[tuple[PlannedPlugin, Any]]:
        """Call a hook of every plug-in that has it, in the plan's order. Yields (plug-in, result)."""
        for plan, instance in self._made:
            if not hasattr(instance, hook_name):
                continue
            arguments = {} if view is None else {"composition": view(plan.options)}
            for answer in self._only(plan)(hook_name)(**arguments):
                check_given(plan.name, hook_name, answer)
                yield plan, answer

    def _only(self, plan: PlannedPlugin) -> Any:
        others = [instance for other, instance in self._made if other is not plan]

        def caller(hook_name: str) -> Any:
            return self._manager.subset_hook_caller(hook_name, remove_plugins=others)

        return caller


def _wrong_hooks(plugin_class: type[Plugin]) -> Iterator[str]:
    """Yields a complaint for each method that looks like a hook, but would never be called."""
    for name in dir(plugin_class):
        method = getattr(plugin_class, name)
        marked = hasattr(method, _MARK)
        if name in _KNOWN:
            if callable(method) and not marked:
                yield f"{name} is not marked with hookimpl, so that it is never called"
        elif marked or (name.startswith(PREFIX) and callable(method)):
            yield f"{name} is no hook{closest(name, _KNOWN)}"
