"""The command line as a process: exit statuses, one clear line, and what ``run`` never imports."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import typer

from blumfeld import __version__
from blumfeld.cli import app
from blumfeld.plugging.registry import GROUP, Registry
from blumfeld.spi.hooks import NoOptions, hookimpl

HEAVY = ("typer", "click", "rich", "structlog", "prometheus_client", "pytest", "pyarrow", "confluent_kafka")


def blumfeld(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "blumfeld.cli.main", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )


def test_run_imports_no_cli_table_or_log_library(tmp_path: Path) -> None:
    code = "import sys, blumfeld.cli.main, blumfeld.cli.run; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=90, check=True
    )
    assert not set(HEAVY) & set(done.stdout.split())


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["run", "--set", "node.id=x"], 'default manifest: node.id: found "x"; allowed: an integer'),
        (["run", "absent.toml"], "absent.toml: no such file"),
        (["plan", "absent.toml"], "absent.toml: no such file"),
        (
            ["plan", "--set=storage.plugin=storage_tiered", "--set=storage.options.store=s3://key:secret@x"],
            'default manifest: storage.options.store: found "s3://***@x", a URL with credentials or a query; allowed: '
            "s3://BUCKET/PREFIX alone; credentials come from the environment, or from a file that options.s3 names "
            "(plug-in storage_tiered)",
        ),
        (["run", "binary.toml"], "binary.toml: found no UTF-8; allowed: a TOML file"),
    ],
)
def test_a_bad_manifest_is_one_line_and_status_2(
    tmp_path: Path, arguments: list[str], complaint: str
) -> None:
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    done = blumfeld(*arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"blumfeld: {complaint}\n")
    assert [path.name for path in tmp_path.iterdir()] == ["binary.toml"]


@pytest.mark.parametrize("arguments", [["run", "--nonsense"], ["nonsense"], ["plan", "--nonsense"]])
def test_a_wrong_argument_is_status_2_and_no_traceback(tmp_path: Path, arguments: list[str]) -> None:
    done = blumfeld(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert "nonsense" in done.stderr
    assert "Traceback" not in done.stderr


def test_version_and_help(tmp_path: Path) -> None:
    assert blumfeld("--version", cwd=tmp_path).stdout == f"blumfeld {__version__}\n"
    done = blumfeld("--help", cwd=tmp_path)
    assert done.returncode == 0
    for command in ("run", "plan", "plugins"):
        assert f" {command} " in done.stdout


def test_run_has_a_help_of_its_own(tmp_path: Path) -> None:
    done = blumfeld("run", "--help", cwd=tmp_path)
    assert done.returncode == 0
    assert "--listen" in done.stdout


def test_plugins_are_listed_with_role_and_distribution(tmp_path: Path) -> None:
    done = blumfeld("plugins", cwd=tmp_path)
    assert done.returncode == 0
    (row,) = [line.split() for line in done.stdout.splitlines() if line.startswith("net_asyncio")]
    assert row == ["net_asyncio", "network", "blumfeld-net-asyncio", __version__]


def test_a_command_of_another_distribution_names_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where the archive's distribution is there and its command isn't, that is another fault, told as such."""
    monkeypatch.setattr(app, "_plugin_commands", dict)
    monkeypatch.setattr(app, "_is_installed", lambda name: name != "blumfeld-archive")
    assert app.run_app(["archive", "once"]) == 1
    line = (
        "archive comes with the package blumfeld-archive, which isn't installed: pip install blumfeld-archive"
    )
    assert capsys.readouterr().err == f"blumfeld: {line}\n"
    monkeypatch.setattr(app, "_is_installed", lambda name: True)
    assert app.run_app(["archive", "once"]) == 2
    assert "No such command 'archive'" in capsys.readouterr().err


def done(context: typer.Context) -> None:
    """It has the files of the machine."""
    typer.echo(f"done: {context.obj.exists('/')}")


class Good:
    options_class = NoOptions
    roles = ()

    @hookimpl
    def blumfeld_cli_commands(self) -> list[typer.Typer]:
        good = typer.Typer(name="good")
        good.callback(invoke_without_command=True)(done)
        return [good]


class Raising:
    options_class = NoOptions
    roles = ()

    @hookimpl
    def blumfeld_cli_commands(self) -> list[typer.Typer]:
        raise ValueError("no commands today")


class Nameless(Raising):
    @hookimpl
    def blumfeld_cli_commands(self) -> list[typer.Typer]:
        return [typer.Typer()]


def test_a_plug_in_whose_commands_fail_costs_no_other_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plugins = [
        EntryPoint(kind.__name__.lower(), f"{__name__}:{kind.__name__}", GROUP)
        for kind in (Good, Nameless, Raising)
    ]
    monkeypatch.setattr(app, "Registry", partial(Registry, plugins))
    assert app.run_app(["good"]) == 0
    output = capsys.readouterr()
    assert output.out == "done: True\n"
    assert output.err.splitlines() == [
        "blumfeld: plug-in nameless: blumfeld_cli_commands gave an app without a name",
        "blumfeld: plug-in raising: blumfeld_cli_commands failed: ValueError('no commands today')",
    ]
    assert app.run_app(["--help"]) == 0
