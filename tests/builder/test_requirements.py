"""What a manifest needs is known without the code of its plug-ins."""

from __future__ import annotations

from pathlib import Path

import msgspec

from blumfeld.plugging.registry import Registry
from blumfeld_builder.build import Request, read_recipe
from blumfeld_builder.wheels.requirements import WRAPPED


def test_the_storages_that_wrap_another_have_its_name_as_their_default() -> None:
    """The builder names it without the plug-in's code, which isn't installed beside it."""
    for outer, inner in WRAPPED.items():
        options = Registry().load(outer, "storage", "a test", "").options_class
        [local] = [field for field in msgspec.structs.fields(options) if field.name == "local"]
        assert local.default == inner


def test_a_manifest_is_built_in_as_it_was_written(tmp_path: Path) -> None:
    """The plan has its digest, as `sha256sum` has it."""
    written = b"[node]\r\nid = 1\r\n"
    (tmp_path / "broker.toml").write_bytes(written)
    assert read_recipe(Request(manifest=str(tmp_path / "broker.toml"), out="")).text.encode() == written
