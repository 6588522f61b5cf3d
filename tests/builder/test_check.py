"""`--check`: the kits run beside the wheels of the build, and what they say stands beside the lock."""

from __future__ import annotations

import json
import os
from pathlib import Path
from select import select

import msgspec
import pytest

from blumfeld.plugging.errors import ManifestError
from blumfeld_builder.build import Request, build, read_recipe
from blumfeld_builder.evidence import check
from blumfeld_builder.evidence.check import refuse_failing
from blumfeld_builder.evidence.results import Document, Untried, results
from tests.builder.fakes import ROLES, make_workshop, repack, write_plugin, write_wheel

PYTEST = ("pytest", "iniconfig", "packaging", "pluggy", "pygments")
OWN_KIT = """
import pytest
from importlib.metadata import version

def test_it_holds(): assert version("tiny-library") == "2.0"
def test_it_breaks(): assert {holds}
def test_it_is_left(): pytest.skip("not tried: blumfeld.spi.storage | it claims nothing")
"""
GENERIC = """
import pytest
pytest.skip("not tried: the plug-in | no kit for its role", allow_module_level=True)
"""


def workshop_with_a_kit(folder: Path, *, holds: bool) -> None:
    """A workshop whose storage brings a kit; beside its wheels lies a kit for all others, which has no tests."""
    make_workshop(folder)
    wheels = folder / "wheels"
    write_plugin(
        wheels,
        "storage_memory",
        kits={"storage_memory": "blumfeld_storage_memory.kit"},
        files={"blumfeld_storage_memory/kit.py": OWN_KIT.format(holds=holds)},
    )
    write_wheel(wheels, "tiny-library", "2.5")  # the lock has 2.0, and the kits see no other
    files = {"blumfeld_kit/plugin_kits/__init__.py": "", "blumfeld_kit/plugin_kits/tests.py": GENERIC}
    write_wheel(wheels, "blumfeld-kit", "0.1.7", requires=["pytest", "tiny-library"], files=files)
    for name in PYTEST:
        repack(name, wheels)
    manifest = folder / "broker.toml"
    manifest.write_text(manifest.read_text() + 'requires = ["tiny-library ==2.0"]\n')


def checked(folder: Path, monkeypatch: pytest.MonkeyPatch, *allowed: str) -> list[str]:
    """Build with a check. Returns what was told of the plug-ins."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr("blumfeld_builder.build.Writing.write", lambda *_: None)
    told: list[str] = []
    build(Request(manifest="broker.toml", out="out", check=True, allowed_to_fail=allowed), told.append)
    return [line.strip() for line in told if line.startswith("  ")]


def test_the_evidence_says_what_passed_and_what_was_not_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workshop_with_a_kit(tmp_path, holds=True)
    told = checked(tmp_path, monkeypatch)
    assert told[1] == "storage_memory: 2 passed, 0 failed, 1 not tried"
    evidence = json.loads((tmp_path / "out/evidence.json").read_text())
    assert evidence["kit_version"] == "0.1.7"
    by_name = {entry["plugin"]: entry for entry in evidence["plugins"]}
    assert set(by_name) == set(ROLES)
    assert by_name["storage_memory"] == {
        "plugin": "storage_memory",
        "role": "storage",
        "distribution": "blumfeld-storage-memory",
        "version": "0.1.0",
        "kit": "blumfeld_storage_memory.kit",
        "passed": 2,
        "failed": [],
        "not_tried": [{"tests": ["test_it_is_left"], "why": "blumfeld.spi.storage | it claims nothing"}],
        "allowed_to_fail": False,
    }
    [untried] = by_name["net_asyncio"]["not_tried"]
    assert untried["why"] == "the plug-in | no kit for its role"


def test_a_plugin_that_fails_its_kit_needs_leave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workshop_with_a_kit(tmp_path, holds=False)
    checked(tmp_path, monkeypatch, "storage_memory")
    text = (tmp_path / "out/evidence.json").read_bytes()
    [entry] = [found for found in msgspec.json.decode(text, type=Document).plugins if found.failed]
    assert (entry.plugin, entry.failed, entry.allowed_to_fail) == (
        "storage_memory",
        ("test_it_breaks",),
        True,
    )

    plugins = read_recipe(Request(manifest="broker.toml", out="")).plugins
    refuse_failing([entry], plugins, "broker.toml")
    without_leave = msgspec.structs.replace(entry, allowed_to_fail=False)
    with pytest.raises(ManifestError) as raised:
        refuse_failing([without_leave], plugins, "broker.toml")
    assert str(raised.value) == (
        'broker.toml: storage.plugin: found "storage_memory", which fails its kit: test_it_breaks; allowed: a plug-in '
        "that passes blumfeld_storage_memory.kit, or --allow-failing storage_memory"
    )


def test_a_kit_that_does_not_run_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workshop_with_a_kit(tmp_path, holds=True)
    write_plugin(
        tmp_path / "wheels", "storage_memory", kits={"storage_memory": "blumfeld_storage_memory.lost"}
    )
    with pytest.raises(
        ManifestError, match=r"pytest blumfeld_storage_memory\.lost: exit status \d: .*not found"
    ):
        checked(tmp_path, monkeypatch)


def test_pytest_takes_nothing_from_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A setting that leaves out a test would leave it out of the evidence."""
    workshop_with_a_kit(tmp_path, holds=True)
    monkeypatch.setenv("PYTEST_ADDOPTS", "-k breaks")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -k holds\n")
    assert checked(tmp_path, monkeypatch)[1] == "storage_memory: 2 passed, 0 failed, 1 not tried"


def test_a_kit_that_ends_pytest_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With status 0 it looks like one whose tests have all passed."""
    workshop_with_a_kit(tmp_path, holds=True)
    write_plugin(
        tmp_path / "wheels",
        "storage_memory",
        kits={"storage_memory": "blumfeld_storage_memory.kit"},
        files={"blumfeld_storage_memory/kit.py": "import os\ndef test_it_ends(): os._exit(0)\n"},
    )
    with pytest.raises(
        ManifestError, match=r"pytest blumfeld_storage_memory\.kit: exit status 0, and no report"
    ):
        checked(tmp_path, monkeypatch)


def test_leave_for_a_plugin_that_isnt_there_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_workshop(tmp_path)
    with pytest.raises(ManifestError) as raised:
        checked(tmp_path, monkeypatch, "storage_memry")
    names = "consensus_kraft, groups_classic, net_asyncio, replication_isr, storage_memory"
    assert str(raised.value) == (
        f'--allow-failing: found "storage_memry"; allowed: {names} (did you mean storage_memory?)'
    )


def test_a_kit_that_isnt_there_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_workshop(tmp_path)
    with pytest.raises(ManifestError) as raised:
        checked(tmp_path, monkeypatch)
    assert str(raised.value).startswith(
        '--check: found blumfeld-kit, of which no wheel fits in "wheels"; allowed: '
    )


def test_a_kit_that_does_not_end_is_killed_with_what_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "TIMEOUT_S", 1)
    os.mkfifo(tmp_path / "started")
    with os.fdopen(os.open(tmp_path / "started", os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0) as started:
        kit = ["sh", "-c", "(echo up; exec sleep 20) >started & wait"]
        assert check._ran(kit, str(tmp_path), {}) == (None, "no end in 1 s")
        assert started.read() == b"up\n"
        assert select([started], [], [], 5)[0]
        assert started.read() == b""  # all that could write has ended


def test_a_process_that_a_kit_leaves_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "TIMEOUT_S", 10)
    assert check._ran(["sh", "-c", "sleep 100 & exit 0"], str(tmp_path), {}) == (0, "exit status 0")


def test_a_report_is_read() -> None:
    report = b"""<testsuites><testsuite>
      <testcase name="test_a"/><testcase name="test_b"><failure message="no"/></testcase>
      <testcase name="test_c"><error message="no"/></testcase>
      <testcase name="test_d"><skipped message="not tried: x | y"/></testcase>
      <testcase name="test_e"><skipped message="no strace"/></testcase>
    </testsuite></testsuites>"""
    assert results(report) == (
        1,
        ("test_b", "test_c"),
        (Untried(("test_e",), "no strace"), Untried(("test_d",), "x | y")),
    )
