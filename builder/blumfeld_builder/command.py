"""``blumfeld build``: the command."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from blumfeld.plugging.errors import ManifestError, Problem
from blumfeld_builder.build import Request, build

BAD_BUILD = 2
ENDS = (signal.SIGTERM, signal.SIGHUP)
"""Signals after which a build leaves nothing, as after Ctrl-C. The second one comes when a terminal is closed."""

app = typer.Typer(name="build", add_completion=False)


@app.command()
def build_command(
    manifest: Annotated[str, typer.Argument(help="The manifest (TOML), with or without a section [build].")],
    out: Annotated[str, typer.Option(help="The folder to write; nothing may be there yet.")],
    locked: Annotated[
        str | None,
        typer.Option(metavar="PYLOCK", help="Take exactly the wheels of this lock, and resolve nothing."),
    ] = None,
    oci: Annotated[bool, typer.Option("--oci", help="Write an OCI image layout, too. Needs --base.")] = False,
    base: Annotated[
        str | None,
        typer.Option(help="Base of the image: an OCI layout, or a folder with a root file system."),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Run the contract kit of each plug-in, and write evidence.json.")
    ] = False,
    allow_failing: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="With --check: a plug-in whose kit may fail; may be repeated."),
    ] = None,
) -> None:
    """Build a broker that holds what a manifest names: one file, with its lock, bill of materials and plan."""
    before = {number: signal.signal(number, _interrupt) for number in ENDS if _is_taken(number)}
    try:
        if oci != (base is not None):
            option, other = ("--oci", "--base") if oci else ("--base", "--oci")
            raise ManifestError("", [Problem(option, f"{option} without {other}", "both, or neither")])
        allowed = tuple(allow_failing or ())
        if allowed and not check:
            raise ManifestError("", [Problem("--allow-failing", "it without --check", "both, or neither")])
        request = Request(
            manifest=manifest, out=out, lock=locked, base=base, check=check, allowed_to_fail=allowed
        )
        secrets = build(request, lambda line: typer.echo(f"{line} …", err=True))
    except ManifestError as error:
        for line in str(error).splitlines():
            typer.echo(f"blumfeld build: {line}", err=True)
        raise typer.Exit(BAD_BUILD) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    for path in sorted(Path(out).iterdir()):
        size = f"{path.stat().st_size / 1e6:.1f} MB" if path.is_file() else ""
        typer.echo(f"{path}  {size}".rstrip())
    if secrets:
        line = f"the artefact holds {', '.join(secrets)} of the manifest: whoever may read it reads these secrets"
        typer.echo(f"blumfeld build: warning: {line}", err=True)


def _is_taken(number: signal.Signals) -> bool:
    """Whether the signal means this process: nohup has SIGHUP ignored."""
    return signal.getsignal(number) is not signal.SIG_IGN


def _interrupt(*_: Any) -> NoReturn:
    raise KeyboardInterrupt
