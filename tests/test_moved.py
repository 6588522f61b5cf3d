"""Public names that have moved work at their old places, with a warning, until the release that the table names."""

from __future__ import annotations

import sys
import warnings
from importlib import import_module
from pkgutil import resolve_name

import pytest

import blumfeld
from blumfeld import moved


@pytest.mark.parametrize("old", moved.MODULES)
def test_the_old_name_of_a_module_is_the_module_at_its_new_place(old: str) -> None:
    """The warning stands at the import of the plug-in, not in Blumfeld."""
    sys.modules.pop(old, None)
    new = moved.MODULES[old]
    with pytest.warns(DeprecationWarning, match=f"^{old} has moved to {new}; Blumfeld 0.2.0 ") as notices:
        module = import_module(old)
    assert module is import_module(new)
    assert len(notices) == 1
    assert "blumfeld/moved.py" not in notices[0].filename


@pytest.mark.parametrize(("old", "name"), moved.NAMES)
def test_a_name_that_left_a_module_is_still_had_from_it(old: str, name: str) -> None:
    module = import_module(old)
    new = moved.NAMES[old, name]
    with pytest.warns(DeprecationWarning, match=f"^{old}.{name} has moved to {new}.{name}; ") as notices:
        attribute = getattr(module, name)
    assert attribute is getattr(import_module(new), name)
    assert notices[0].filename == __file__
    with pytest.raises(AttributeError, match=f"module '{old}' has no attribute 'never_there'"):
        _ = module.never_there


def test_the_modules_of_a_package_that_moved_are_not_imported_twice() -> None:
    for old in [name for name in sys.modules if name.startswith("blumfeld.testing.storage_contract")]:
        del sys.modules[old]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = import_module("blumfeld.testing.storage_contract.kit")
    assert module is import_module("blumfeld_kit.storage_contract.kit")


def test_a_plug_ins_own_import_is_what_the_warning_names() -> None:
    sys.modules.pop("blumfeld.wire.records", None)
    with warnings.catch_warnings(record=True) as notices:
        warnings.simplefilter("always")
        exec(compile("from blumfeld.wire.records import records", "acme/plugin.py", "exec"), {})
    assert [notice.filename for notice in notices] == ["acme/plugin.py"]


def test_an_old_place_is_taken_out_by_the_release_that_was_said() -> None:
    """Red? Take the lines of this release out of ``blumfeld.moved``."""
    assert _numbers(blumfeld.__version__) < _numbers(moved.GONE_IN)


def test_no_old_place_is_a_module_again() -> None:
    """A module at an old place would hide its line."""
    others = [finder for finder in sys.meta_path if not isinstance(finder, moved.OldPlaces)]
    for old in moved.MODULES:
        package = import_module(old.rpartition(".")[0])
        assert not [f for f in others if f.find_spec(old, package.__path__) is not None], old


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


@pytest.mark.parametrize(
    "old_name", ["blumfeld.testing.fakes:FakeRuntime", "blumfeld.testing:StorageContract"]
)
def test_an_old_name_of_the_kit_says_which_package_is_missing(
    old_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(_: str) -> None:
        raise ModuleNotFoundError("No module named 'blumfeld_kit'", name="blumfeld_kit")

    monkeypatch.delitem(sys.modules, "blumfeld.testing.fakes", raising=False)
    monkeypatch.setattr(moved, "import_module", absent)
    with (
        pytest.warns(DeprecationWarning, match="has moved to blumfeld_kit"),
        pytest.raises(ModuleNotFoundError, match=r"pip install blumfeld-kit$"),
    ):
        resolve_name(old_name)
