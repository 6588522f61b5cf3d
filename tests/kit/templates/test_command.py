"""``blumfeld new plugin``: what it writes, and what it refuses before it writes anything."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from blumfeld.cli.main import main
from blumfeld_kit.templates import command
from blumfeld_kit.templates.distribution import ROLES, distribution_files


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_folder_with_all_files_is_written(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "plugin", "assignor", "acme_x"]) == 0
    assert capsys.readouterr().out == "acme_x: cd there; README.md has the commands, and what you write\n"
    written = sorted(
        str(path.relative_to(here / "acme_x")) for path in (here / "acme_x").rglob("*") if path.is_file()
    )
    assert written == [
        "README.md",
        "acme_x/__init__.py",
        "acme_x/assignor.py",
        "acme_x/plugin.py",
        "acme_x/py.typed",
        "broker.toml",
        "pyproject.toml",
        "tests/test_acme_x.py",
    ]
    assert [path.name for path in here.iterdir()] == ["acme_x"]
    project = tomllib.loads((here / "acme_x" / "pyproject.toml").read_text())["project"]
    assert project["name"] == "acme-x"
    assert project["entry-points"]["blumfeld.plugins"] == {"acme_x": "acme_x:Plugin"}


@pytest.mark.parametrize("role", ROLES)
def test_no_word_of_the_template_is_left(role: str) -> None:
    """Nor any that the templates use for another role."""
    texts = distribution_files(role, "zeta_q9")
    for path, text in texts.items():
        assert "acme" not in f"{path} {text}".lower(), path
        assert "$" not in text, path


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["storrage", "acme_x"], 'ROLE: found "storrage"; allowed: assignor, '),
        (["consensus", "acme_x"], 'ROLE: found "consensus", which has no template: it needs the controller'),
        (["assignor", "Acme"], 'NAME: found "Acme"; allowed: lower-case words'),
        (["assignor", "acme-x"], 'NAME: found "acme-x"; allowed: lower-case words'),
        (["assignor", "a" * 41], "characters at most"),
        (["assignor", "class"], "which is Python's own"),
        (["assignor", "json"], "which is Python's own"),
        (["assignor", "sitecustomize"], "which Python or pytest imports unasked"),
        (["assignor", "tests"], "the folder of the tests beside the package"),
        (["assignor", "storage_local"], 'NAME: found "storage_local", a plug-in that is installed'),
        (["assignor", "msgspec"], 'NAME: found "msgspec", a package that is installed'),
        (["assignor", "blumfeld_x"], "allowed: a name of yours"),
        (["assignor", "acme_x", "--out", "nowhere"], "--out: found nowhere, which is no folder"),
        (["assignor", "acme_there"], "acme_there is there already; allowed: a new folder"),
    ],
)
def test_what_can_not_be_written_is_refused_and_nothing_is(
    here: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], complaint: str
) -> None:
    (here / "acme_there").mkdir()
    assert main(["new", "plugin", *arguments]) == 2
    refused = capsys.readouterr()
    assert complaint in refused.err
    assert refused.err.startswith("blumfeld: ")
    assert refused.out == ""
    assert [path.name for path in here.iterdir()] == ["acme_there"]
    assert list((here / "acme_there").iterdir()) == []


def test_a_disk_that_fails_leaves_nothing_half_written(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path.write_text

    def write_text(path: Path, text: str, encoding: str) -> int:
        if path.name == "plugin.py":
            raise OSError(28, "No space left on device", str(path))
        return real(path, text, encoding=encoding)

    monkeypatch.setattr(Path, "write_text", write_text)
    with pytest.raises(OSError, match="No space left"):
        command.write_folder(here / "acme_x", distribution_files("assignor", "acme_x"))
    assert list(here.iterdir()) == []
