"""What a manifest needs is known without the code of its plug-ins."""

from __future__ import annotations

import msgspec

from blumfeld.plugging.registry import Registry
from blumfeld_builder.wheels.requirements import WRAPPED


def test_the_storages_that_wrap_another_have_its_name_as_their_default() -> None:
    """The builder names it without the plug-in's code, which isn't installed beside it."""
    for outer, inner in WRAPPED.items():
        options = Registry().load(outer, "storage", "a test", "").options_class
        [local] = [field for field in msgspec.structs.fields(options) if field.name == "local"]
        assert local.default == inner
