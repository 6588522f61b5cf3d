"""``blumfeld new plugin ROLE NAME``: write the distribution of a plug-in that serves on its first run."""

from __future__ import annotations

import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from blumfeld.plugging.registry import Registry
from blumfeld_kit.templates.distribution import (
    ROLES,
    WITHOUT_TEMPLATE,
    NameRefusedError,
    check_name,
    distribution_files,
)

REFUSED = 2
"""Exit status: an argument can't be used. Nothing was written."""

app = typer.Typer(name="new", add_completion=False, no_args_is_help=True)


@app.callback()
def new() -> None:
    """Begin something of your own."""


@app.command()
def plugin(
    role: Annotated[str, typer.Argument(help=f"One of {', '.join(ROLES)}.")],
    name: Annotated[str, typer.Argument(help="Its package and its name in a manifest: acme_storage.")],
    out: Annotated[Path, typer.Option(help="The folder to write its folder into.")] = Path(),
) -> None:
    """Write the distribution of a new plug-in: it serves on its first run, and its contract kit is red only where you
    must write.
    """
    try:
        role = _checked_role(role)
        check_name(name, Registry().names(), {name} if _is_importable(name) else ())
        folder = out / name
        write_folder(folder, distribution_files(role, name))
    except (NameRefusedError, OSError) as error:
        typer.echo(f"blumfeld: {error}", err=True)
        raise typer.Exit(REFUSED) from None
    typer.echo(f"{folder}: cd there; README.md has the commands, and what you write")


def _checked_role(role: str) -> str:
    word = role.replace("_", "-")
    if word in ROLES:
        return word
    allowed = ", ".join(ROLES)
    if word in WITHOUT_TEMPLATE:
        raise NameRefusedError(
            f'ROLE: found "{role}", which has no template: {WITHOUT_TEMPLATE[word]}; allowed: {allowed}'
        )
    raise NameRefusedError(f'ROLE: found "{role}"; allowed: {allowed}')


def _is_importable(name: str) -> bool:
    """Return whether Python finds a package or module of this name that isn't just a folder of the current one."""
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        return False
    return spec is not None and spec.origin is not None


def write_folder(folder: Path, texts: dict[str, str]) -> None:
    """Write all files of a new folder, or none.

    :raises OSError: the folder is there already, or can't be written
    """
    if folder.exists() or folder.is_symlink():
        raise FileExistsError(f"{folder} is there already; allowed: a new folder (--out, or another NAME)")
    if not folder.parent.is_dir():
        raise NotADirectoryError(
            f"--out: found {folder.parent}, which is no folder; allowed: one that exists"
        )
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as whole:
        for path, text in texts.items():
            file = Path(whole, folder.name, path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        Path(whole, folder.name).rename(folder)
