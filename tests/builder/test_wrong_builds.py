"""Builds that can't be. Each is told with its place, what was found and what is allowed, and leaves nothing behind.

The messages stand in ``tests/traces/builds_*.txt``.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from blumfeld.plugging.errors import ManifestError
from blumfeld_builder import build as steps
from blumfeld_builder.build import Request, build
from blumfeld_builder.out import whole_folder
from blumfeld_builder.tools import Said, ToolFailed
from blumfeld_builder.wheels.lock import lock_text
from tests.builder.fakes import make_workshop, write_plugin, write_wheel
from tests.trace_files import check_trace

Change = Callable[[Path], object]
"""Makes a workshop wrong."""
SECTION = "[build]"


def changed(file: str, old: str, new: str) -> Change:
    """Replaces the first match of a pattern."""

    def change(folder: Path) -> None:
        text = (folder / file).read_text()
        assert re.search(old, text, flags=re.M | re.S), old
        (folder / file).write_text(re.sub(old, new, text, count=1, flags=re.M | re.S))

    return change


def section(line: str) -> Change:
    """Adds a line to [build]."""
    return changed("broker.toml", re.escape(SECTION), f"{SECTION}\n{line}")


def storage(plugin: str) -> Change:
    """Names another storage."""
    return changed("broker.toml", '"storage_memory"', plugin)


def looked_at(*entries: str) -> Change:
    """Names other wheels."""
    return changed("broker.toml", re.escape('["wheels"]'), str(list(entries)).replace("'", '"'))


def acme(plugin: str = "acme_storage", **more: Any) -> Change:
    """Adds a wheel of a stranger's."""
    return lambda folder: write_plugin(folder / "wheels", plugin, "acme-storage", "1.2", **more)


def memory(**more: Any) -> Change:
    """Replaces the wheel of the storage."""

    def change(folder: Path) -> None:
        (folder / "wheels/blumfeld_storage_memory-0.1.0-py3-none-any.whl").unlink()
        write_plugin(folder / "wheels", "storage_memory", **more)

    return change


def truncated(folder: Path) -> None:
    """Cuts the wheel of the storage."""
    [wheel] = (folder / "wheels").glob("blumfeld_storage_memory-*")
    wheel.write_bytes(wheel.read_bytes()[:100])


def misnamed(folder: Path) -> None:
    """Gives the wheel of the storage the content of another."""
    [wheel] = (folder / "wheels").glob("blumfeld_storage_memory-*")
    wheel.write_bytes(write_wheel(folder, "acme").rename(wheel).read_bytes())


def broken(folder: Path) -> None:
    """Breaks the packed bytes of a file in the wheel of the storage. Its directory and its metadata stay whole."""
    memory(files={"blumfeld_storage_memory/plugin.py": "# " + "memory " * 1000})(folder)
    [wheel] = (folder / "wheels").glob("blumfeld_storage_memory-*")
    data = bytearray(wheel.read_bytes())
    begin = data.index(b"blumfeld_storage_memory/plugin.py") + len("blumfeld_storage_memory/plugin.py")
    data[begin : begin + 8] = b"\xff" * 8
    wheel.write_bytes(data)


def by_address(folder: Path) -> None:
    """Lets the wheel of the storage require one that lies elsewhere."""
    elsewhere = write_wheel(folder / "elsewhere", "acme")
    memory(requires=["blumfeld", f"acme @ {elsewhere.as_uri()}"])(folder)


def sources(folder: Path) -> None:
    """Adds sources that nothing builds."""
    (folder / "acme").mkdir()
    system = '[build-system]\nrequires = []\nbuild-backend = "absent_backend"\n'
    (folder / "acme/pyproject.toml").write_text(f'{system}[project]\nname = "acme"\nversion = "1"\n')


def empty(folder: Path) -> None:
    """Adds a folder without wheels."""
    (folder / "empty").mkdir()


MANIFESTS: dict[str, list[Change]] = {
    "there is no manifest": [lambda folder: (folder / "broker.toml").unlink()],
    "the manifest is no UTF-8": [lambda folder: (folder / "broker.toml").write_bytes(b"\xff")],
    "a key is unknown": [section('wheel = ["wheels"]')],
    "a value has another type": [section('requires = "acme"')],
    "a role has two plug-ins": [storage('["storage_memory", "storage_local"]')],
    "a requirement is none": [section('requires = ["acme storage"]')],
    "a requirement has an address": [section('requires = ["acme @ http://127.0.0.1/acme.whl"]')],
    "the Python is too old": [section('python = "3.10"')],
    "the Python is no version": [section('python = "three"')],
    "the Python isn't installed": [section('python = "3.99"')],
    "the wheels aren't there": [looked_at("wheels", "absent")],
    "a folder has no wheels": [empty, looked_at("empty")],
    "a file is no wheel": [looked_at("broker.toml")],
    "the sources can't be built": [sources, looked_at("wheels", "acme")],
}
WHEELS_AND_INDEX: dict[str, list[Change]] = {
    "a plug-in has no wheel": [storage('"storage_local"')],
    "no wheel brings a plug-in": [acme(), storage('"acme_storag"'), section('requires = ["acme-storage"]')],
    "a version isn't there": [acme(), section('requires = ["acme-storage >=2"]')],
    "two versions conflict": [section('requires = ["tiny-library <2", "tiny-library >1.5"]')],
    "a plug-in is for another core": [
        acme(requires=["blumfeld>=0.2"]),
        storage('"acme_storage"'),
        section('requires = ["acme-storage"]'),
    ],
    "a wheel is of another platform": [memory(tag="cp311-cp311-win_amd64")],
    "a wheel is for a newer Python": [acme(python=">=3.99"), section('requires = ["acme-storage"]')],
    "a dependency has no wheel": [lambda folder: next((folder / "wheels").glob("tiny*")).unlink()],
    "two distributions bring a plug-in": [acme("storage_memory"), section('requires = ["acme-storage"]')],
    "nothing needs a requirement": [acme(), section('requires = ["acme-storage"]')],
    "an extra isn't there": [section('requires = ["tiny-library[oauht]"]')],
    "a wheel requires another by its address": [by_address],
    "a wheel requires another by an address that can't be reached": [
        memory(requires=["acme @ http://127.0.0.1:1/acme-0.1.0-py3-none-any.whl"])
    ],
    "the index is no address": [section('index = ""')],
    "the index is no host": [section('index = "simple.example"')],
    "the index is a folder that isn't there": [section('index = "file:///absent/simple"')],
    "the index has a password": [section('index = "https://me:word@wheels.example/simple"')],
    "the index can't be reached": [section('index = "http://127.0.0.1:1/simple"')],
    "a wheel is no zip": [truncated],
    "a wheel is broken inside": [broken],
    "a wheel is of another distribution": [misnamed],
}
LOCKS: dict[str, list[Change]] = {
    "there is no lock": [lambda folder: (folder / "pylock.toml").unlink()],
    "the lock is no TOML": [lambda folder: (folder / "pylock.toml").write_text("=")],
    "the lock has another format": [changed("pylock.toml", '"1.0"', '"9.0"')],
    "the lock is of another manifest": [
        lambda folder: write_plugin(folder / "wheels", "quotas"),
        changed("broker.toml", "^transactions", 'quotas.plugin = "quotas"\ntransactions'),
    ],
    "the lock is for another Python": [changed("pylock.toml", "==3.11", "==3.12")],
    "the lock is for another platform": [changed("pylock.toml", "'linux'", "'win32'")],
    "a wheel has another hash": [memory(files={"more.py": ""})],
    "a wheel is nowhere": [lambda folder: next((folder / "wheels").glob("blumfeld_storage*")).unlink()],
    "a package has two wheels": [
        changed("pylock.toml", r"(\[\[packages.wheels\]\].*?)(\[\[packages\]\])", r"\1\n\1\n\2")
    ],
    "a package stands twice": [
        changed("pylock.toml", r"(\[\[packages\]\].*?)(\[\[packages\]\])", r"\1\n\1\n\2")
    ],
    "the lock's requirements are no list": [
        changed("pylock.toml", r"^requires = \[.*?\]", 'requires = "blumfeld"')
    ],
    "the lock lacks a dependency": [
        changed("pylock.toml", r"\[\[packages\]\]\nname = .tiny-library.*(?=\[tool)", "")
    ],
}
"""By the name of the case; each change is made in order."""


@pytest.fixture
def enter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Makes a folder with a manifest that could be built the working directory."""

    def folder_of(name: str) -> Path:
        folder = tmp_path / re.sub(r"\W", "-", name)
        make_workshop(folder)
        monkeypatch.chdir(folder)
        return folder

    return folder_of


def complaint(folder: Path, lock: str | None = None, out: str = "out") -> list[str]:
    """Build, and return the lines of the error. Nothing was written."""
    before = sorted(folder.rglob("*"))
    with pytest.raises(ManifestError) as raised:
        build(Request(manifest="broker.toml", out=out, lock=lock), lambda line: None)
    assert sorted(folder.rglob("*")) == before
    message = re.sub(r"\b[0-9a-f]{64}\b", "HASH", str(raised.value).replace(str(folder), "FOLDER"))
    return message.splitlines()


def outcome(
    enter: Callable[[str], Path], cases: dict[str, list[Change]], lock: str | None, name: str
) -> list[str]:
    """Make a workshop wrong, and return the complaint."""
    folder = enter(name)
    if lock is not None:
        (folder / "pylock.toml").write_text(lock)
    for change in cases[name]:
        change(folder)
    return complaint(folder, None if lock is None else "pylock.toml")


def test_a_wrong_manifest_is_told_with_what_is_allowed(enter: Callable[[str], Path]) -> None:
    check_trace("builds_manifests", partial(outcome, enter, MANIFESTS, None))


def test_wheels_that_dont_fit_are_told_with_the_place_that_names_them(enter: Callable[[str], Path]) -> None:
    check_trace("builds_wheels", partial(outcome, enter, WHEELS_AND_INDEX, None))


def test_a_lock_that_doesnt_fit_is_told(enter: Callable[[str], Path], tmp_path: Path) -> None:
    recipe = steps.read_recipe(Request(manifest=str(make_workshop(tmp_path)), out=""))
    supply = steps.supply_of(recipe, str(tmp_path))
    wheels = steps.chosen_wheels(recipe, supply, str(tmp_path), lambda line: None)
    text = lock_text(wheels, recipe.wanted, recipe.target)
    check_trace("builds_locks", partial(outcome, enter, LOCKS, text))


def test_every_case_is_in_its_trace() -> None:
    for name, cases in (("manifests", MANIFESTS), ("wheels", WHEELS_AND_INDEX), ("locks", LOCKS)):
        text = (Path(__file__).parents[1] / f"traces/builds_{name}.txt").read_text()
        assert re.findall("^> (.*)", text, flags=re.M) == list(cases)


def test_what_is_at_the_place_is_left(enter: Callable[[str], Path]) -> None:
    folder = enter("out")
    (folder / "out").mkdir()
    (folder / "out/precious").write_text("")
    assert complaint(folder) == [
        "--out: found FOLDER/out, which is there; allowed: a path at which nothing is yet"
    ]


def test_a_build_that_another_one_was_faster_than_says_that_its_place_is_taken(tmp_path: Path) -> None:
    def build_slowly() -> None:
        with whole_folder(str(tmp_path / "out")):
            (tmp_path / "out").mkdir()
            (tmp_path / "out/precious").write_text("")

    with pytest.raises(ManifestError, match="out, which is there"):
        build_slowly()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_place_that_cant_be_written_is_told(enter: Callable[[str], Path]) -> None:
    folder = enter("out")
    allowed = "allowed: a path in a folder that is there and can be written"
    assert complaint(folder, out="absent/out") == [
        f"--out: found FOLDER/absent/out: no such file or directory; {allowed}"
    ]
    assert complaint(folder, out="broker.toml/out") == [
        f"--out: found FOLDER/broker.toml/out: not a directory; {allowed}"
    ]


def test_a_full_disk_is_told(enter: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    def full(source: str, copied: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.path.basename(copied))

    monkeypatch.setattr(shutil, "copyfile", full)
    assert complaint(enter("full")) == [
        "--out: found blumfeld-0.1.0-py3-none-any.whl: no space left on device; allowed: a folder on a disk with room, "
        "at a path at which nothing is yet"
    ]


def test_a_write_that_fails_may_have_been_to_either_disk(
    enter: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(shutil, "copyfile", full)
    [line] = complaint(enter("either"))
    assert f"FOLDER/out, or {tempfile.gettempdir()} for temporary files: no space left on device" in line


def test_of_a_tools_traceback_the_last_line_is_told() -> None:
    said = Said("", "Traceback (most recent call last):\n  File x\nOSError: no space")
    assert str(ToolFailed("pex", said)) == "pex failed: OSError: no space"


def test_a_file_of_elsewhere_that_cannot_be_read_is_no_fault_of_out(
    enter: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def secret(source: str, _: str) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), "/base/etc/shadow")

    monkeypatch.setattr(shutil, "copyfile", secret)
    assert complaint(enter("secret")) == ["/base/etc/shadow: permission denied"]


def test_an_interrupted_build_leaves_nothing(
    enter: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while the file is written. SIGTERM does the same: the command turns it into one."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("blumfeld_builder.artefact.pyz.write_artefact", interrupted)
    folder = enter("interrupted")
    before = sorted(folder.rglob("*"))
    with pytest.raises(KeyboardInterrupt):
        build(Request(manifest="broker.toml", out="out"), lambda line: None)
    assert sorted(folder.rglob("*")) == before


def test_a_plugin_that_cant_be_imported_is_told_by_the_artefact(enter: Callable[[str], Path]) -> None:
    folder = enter("import")
    memory(plugins={"storage_memory": "absent_module:Plugin"})(folder)
    assert complaint(folder) == [
        "broker.toml: storage.plugin: found storage_memory: No module named 'absent_module'"
    ]
