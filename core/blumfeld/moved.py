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
    from collections.abc import Callable, Sequence
    from types import ModuleType
    from typing import Any

GONE_IN = "0.2.0"
"""The release that has these old places no longer."""

MODULES = {
    "blumfeld.log.file_names": "blumfeld.log.segments.file_names",
    "blumfeld.log.segment_rules": "blumfeld.log.segments.rules",
    "blumfeld.spi.config": "blumfeld.config.values",
    "blumfeld.testing.fake_files": "blumfeld.testing.fakes.files",
    "blumfeld.testing.fake_power": "blumfeld.testing.fakes.power",
    "blumfeld.testing.fake_runtime": "blumfeld.testing.fakes.runtime",
    "blumfeld.testing.storage_kit": "blumfeld.testing.storage_contract.kit",
    "blumfeld.testing.storage_node": "blumfeld.testing.storage_driver.node",
    "blumfeld.wire.batch_builder": "blumfeld.wire.batches.builder",
    "blumfeld.wire.control_records": "blumfeld.wire.batches.control_records",
    "blumfeld.wire.record_batch": "blumfeld.wire.batches.record_batch",
    "blumfeld.wire.records": "blumfeld.wire.batches.records",
}
"""New place of each module, by its old one."""

NAMES = {
    ("blumfeld.log.cleaning", "clean"): "blumfeld.log.cleaning.cleaner_pass",
    ("blumfeld.spi.groups", "TransactionCoordinator"): "blumfeld.spi.transactions",
    ("blumfeld.wire.compression", "Codec"): "blumfeld.wire.compression.codec",
}
"""New module of a name that left a module which is still there, and which ends with ``__getattr__ = old_names(…)``."""


class OldPlaces:
    """Finds the modules of :data:`MODULES`. It stands last on ``sys.meta_path``, so other imports never ask it."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a spec for the old name of a module."""
        return ModuleSpec(name, self) if name in MODULES else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> None:
        """Leave it to Python: :meth:`exec_module` puts the right one in its place."""

    def exec_module(self, module: ModuleType) -> None:
        """Let the old name stand for the module at its new place."""
        old = module.__name__
        _warn(old, MODULES[old])
        sys.modules[old] = import_module(MODULES[old])


def old_names(module: str) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a module that some of :data:`NAMES` have left."""

    def get(name: str) -> Any:
        new = NAMES.get((module, name))
        if new is None:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        _warn(f"{module}.{name}", f"{new}.{name}")
        return getattr(import_module(new), name)

    return get


def _warn(old: str, new: str) -> None:
    import warnings

    warnings.warn(
        f"{old} has moved to {new}; Blumfeld {GONE_IN} will not have the old place",
        DeprecationWarning,
        stacklevel=3,
    )
