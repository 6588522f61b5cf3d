"""``blumfeld build`` in an artefact: what it was built from. The distribution ``blumfeld-builder`` builds."""

from __future__ import annotations

from typing import Annotated

import typer

from blumfeld import __version__
from blumfeld.cli.built_in import LOCK, MANIFEST, built_in


def build(
    show: Annotated[
        bool, typer.Option("--show", help="The wheels with their hashes, and the manifest.")
    ] = False,
    manifest: Annotated[
        bool, typer.Option("--manifest", help="The manifest alone, as it was written.")
    ] = False,
    lock: Annotated[bool, typer.Option("--lock", help="The lock alone (pylock.toml).")] = False,
) -> None:
    """Show what this artefact was built from."""
    if show + manifest + lock != 1:
        line = (
            "blumfeld: an artefact builds nothing: --show, --manifest or --lock tell what it was built from; "
        )
        typer.echo(line + "to build, pip install blumfeld-builder", err=True)
        raise typer.Exit(2)
    if lock or manifest:
        typer.echo(built_in(LOCK if lock else MANIFEST), nl=False)
        return
    typer.echo(f"blumfeld {__version__}, built from these wheels:\n")
    for name, version, digest in _wheels(built_in(LOCK) or ""):
        typer.echo(f"  {name} {version}  sha256:{digest}")
    typer.echo(f"\nand this manifest:\n\n{built_in(MANIFEST)}", nl=False)


def _wheels(lock: str) -> list[tuple[str, str, str]]:
    import tomllib

    return [
        (package["name"], package["version"], wheel["hashes"]["sha256"])
        for package in tomllib.loads(lock)["packages"]
        for wheel in package["wheels"]
    ]
