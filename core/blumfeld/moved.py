"""Public names that have moved: their old places work for one release, with a ``DeprecationWarning``.

docs/plugin-api.md says which names are public. When one moves, its old place gets a line here, and the release
:data:`GONE_IN` takes it out.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec

TYPE_CHECKING = False  # every `import blumfeld` comes by here, and needs no typing
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import ModuleType
    from typing import Any

GONE_IN = "0.2.0"
"""The release that has these old places no longer."""

MODULES = {
    "blumfeld.log.file_names": "blumfeld.log.segments.file_names",
    "blumfeld.log.segment_rules": "blumfeld.log.segments.rules",
    "blumfeld.spi.config": "blumfeld.config.values",
    "blumfeld.spi.observing": "blumfeld.spi.observer",
    "blumfeld.testing.assignor_contract": "blumfeld_kit.assignor_contract",
    "blumfeld.testing.fake_files": "blumfeld_kit.fakes.files",
    "blumfeld.testing.fake_power": "blumfeld_kit.fakes.power",
    "blumfeld.testing.fake_runtime": "blumfeld_kit.fakes.runtime",
    "blumfeld.testing.fakes": "blumfeld_kit.fakes",
    "blumfeld.testing.groups": "blumfeld_kit.groups",
    "blumfeld.testing.observer_contract": "blumfeld_kit.observer_contract",
    "blumfeld.testing.storage_contract": "blumfeld_kit.storage_contract",
    "blumfeld.testing.storage_driver": "blumfeld_kit.storage_driver",
    "blumfeld.testing.storage_kit": "blumfeld_kit.storage_contract.kit",
    "blumfeld.testing.storage_memory": "blumfeld_storage_memory",
    "blumfeld.testing.storage_node": "blumfeld_kit.storage_driver.node",
    "blumfeld.testing.transport_contract": "blumfeld_kit.transport_contract",
    "blumfeld.wire.batch_builder": "blumfeld.wire.batches.builder",
    "blumfeld.wire.control_records": "blumfeld.wire.batches.control_records",
    "blumfeld.wire.record_batch": "blumfeld.wire.batches.record_batch",
    "blumfeld.wire.records": "blumfeld.wire.batches.records",
}
"""New place of each module, by its old one. The modules of a package move with it."""

NAMES = {
    ("blumfeld.log.cleaning", "clean"): "blumfeld.log.cleaning.cleaner_pass",
    ("blumfeld.spi.groups", "TransactionCoordinator"): "blumfeld.spi.transactions",
    ("blumfeld.testing", "AssignorContract"): "blumfeld_kit",
    ("blumfeld.testing", "GroupProtocolContract"): "blumfeld_kit",
    ("blumfeld.testing", "ObserverContract"): "blumfeld_kit",
    ("blumfeld.testing", "StorageContract"): "blumfeld_kit",
    ("blumfeld.testing", "TransportContract"): "blumfeld_kit",
    ("blumfeld.spi.steps", "ServeInSteps"): "blumfeld.spi.old_forms",
    ("blumfeld.spi.steps", "TakesSteps"): "blumfeld.spi.context",
    ("blumfeld.spi.steps", "by_elements"): "blumfeld.spi.old_forms",
    ("blumfeld.spi.steps", "check_keys"): "blumfeld.spi.old_forms",
    ("blumfeld.spi.steps", "error_steps"): "blumfeld.spi.old_forms",
    ("blumfeld.wire.compression", "Codec"): "blumfeld.wire.compression.codec",
}
"""New module of a name that left a module which is still there, and which ends with ``__getattr__ = old_names(…)``."""


class OldPlaces:
    """Finds the modules of :data:`MODULES`. It stands last on ``sys.meta_path``, so other imports never ask it.

    Once a package stands at its old place, it stands first: Python would find the package's modules by their path, and
    import them a second time under their old names.
    """

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a spec for the old name of a module."""
        return ModuleSpec(name, self) if new_place(name) is not None else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> None:
        """Leave it to Python: :meth:`exec_module` puts the right one in its place."""

    def exec_module(self, module: ModuleType) -> None:
        """Let the old name stand for the module at its new place."""
        old = module.__name__
        new = new_place(old)
        assert new is not None
        _warn(old, new)
        sys.modules[old] = _import(new)
        if sys.meta_path[0] is not self and hasattr(sys.modules[old], "__path__"):
            sys.meta_path.remove(self)
            sys.meta_path.insert(0, self)


def new_place(old: str) -> str | None:
    """Return the new place of a module, or ``None`` if it has not moved."""
    if old in MODULES:
        return MODULES[old]
    package, _, name = old.rpartition(".")
    return f"{MODULES[package]}.{name}" if package in MODULES else None


def old_names(module: str, lazy: Mapping[str, str] | None = None) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a module that some of :data:`NAMES` have left.

    :param lazy: names of the module that are imported when they are first asked for, each with its home
    """

    def get(name: str) -> Any:
        if lazy is not None and name in lazy:
            return getattr(import_module(lazy[name]), name)
        new = NAMES.get((module, name))
        if new is None:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        _warn(f"{module}.{name}", f"{new}.{name}")
        return getattr(_import(new), name)

    return get


def _import(new: str) -> ModuleType:
    """Import a module at its new place, which may be in another distribution."""
    try:
        return import_module(new)
    except ModuleNotFoundError as error:
        if error.name != "blumfeld_kit":
            raise
        text = f"{new} comes with the package blumfeld-kit, which isn't installed: pip install blumfeld-kit"
        raise ModuleNotFoundError(text, name=error.name) from None


def _warn(old: str, new: str) -> None:
    import warnings

    warnings.warn(
        f"{old} has moved to {new}; Blumfeld {GONE_IN} will not have the old place",
        DeprecationWarning,
        stacklevel=3,
    )
