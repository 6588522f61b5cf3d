"""All commands except ``run``, built with typer. Commands of other rooms and of plug-ins are imported only
when used.

typer's command types are :class:`Any` here: newer versions bring their own click, older ones use the common
one.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pkgutil import resolve_name
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from blumfeld import __version__
from blumfeld.cli.manifest import BUILT_IN, source_name
from blumfeld.kernel.runtime.real_files import RealFiles
from blumfeld.plugging.errors import ManifestError
from blumfeld.plugging.plugins import PlannedPlugin, PluginSet
from blumfeld.plugging.registry import Registry
from blumfeld.spi.hooks import NoOptions, Plugin
from blumfeld.wire.errors import PluginContractError

LAZY = {
    "cluster": "blumfeld.cli.cluster.command:app",
    "demo": "blumfeld.cli.demo.command:demo",
    "format": "blumfeld.cli.format:format_data_dir",
    "log": "blumfeld.cli.log.command:log",
    "plan": "blumfeld.cli.plan.command:plan",
    "wire": "blumfeld.cli.wire:app",
}
"""Commands of other rooms: a typer app, or a function."""

ELSEWHERE = {
    "archive": "blumfeld-archive",
    "bench": "blumfeld-bench",
    "build": "blumfeld-builder",
    "new": "blumfeld-kit",
    "simulate": "blumfeld-kit",
}
"""Commands that this project publishes in another distribution: command → distribution."""

BUILT_IN_ONLY = {"build": "blumfeld.cli.build:build"}
"""Commands of an artefact of ``blumfeld build``, which holds no builder."""


class LazyGroup(TyperGroup):
    """A command group that imports a room or a plug-in only for its own command and for ``--help``."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names of all commands that can be loaded, sorted."""
        return sorted({*super().list_commands(ctx), *LAZY, *_plugin_commands()})

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Returns our command, another room's, or a plug-in's, in this order.

        A command of ``ELSEWHERE`` without its distribution ends the program with a line that names the
        distribution. "No such command" would look like a spelling mistake.
        """
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        rooms = {**LAZY, **(BUILT_IN_ONLY if source_name(None) == BUILT_IN else {})}
        if cmd_name in rooms:
            return _as_command(resolve_name(rooms[cmd_name]), cmd_name)
        command = _plugin_commands().get(cmd_name)
        if command is None and cmd_name in ELSEWHERE and not _is_installed(ELSEWHERE[cmd_name]):
            name = ELSEWHERE[cmd_name]
            line = f"blumfeld: {cmd_name} comes with the package {name}, which isn't installed: pip install {name}"
            typer.echo(line, err=True)
            raise typer.Exit(1)
        return command


def _is_installed(name: str) -> bool:
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True


def _as_command(plugin_commands: Any, name: str) -> Any:
    if isinstance(plugin_commands, typer.Typer):
        command = typer.main.get_command(plugin_commands)
    else:
        app = typer.Typer(add_completion=False)
        app.command(name)(plugin_commands)
        command = typer.main.get_command(app)
    command.name = name
    return command


def _plugin_commands() -> dict[str, Any]:
    registry = Registry()
    commands: dict[str, Any] = {}
    for name in registry.names():
        try:
            commands.update(_commands_of(name, registry.load_any(name)))
        except (ManifestError, PluginContractError) as error:
            typer.echo(f"blumfeld: {error}", err=True)
        except Exception as error:  # costs this plug-in's commands, not the others'
            typer.echo(f"blumfeld: plug-in {name}: blumfeld_cli_commands failed: {error!r}", err=True)
    return commands


def _commands_of(name: str, plugin: type[Plugin]) -> dict[str, Any]:
    if not hasattr(plugin, "blumfeld_cli_commands"):
        return {}
    planned = PlannedPlugin(role="cli", name=name, path="", plugin_class=plugin, options=NoOptions())
    apps = [app for _, given in PluginSet([planned]).each("blumfeld_cli_commands") for app in given]
    if not all(app.info.name for app in apps):
        raise PluginContractError(f"plug-in {name}: blumfeld_cli_commands gave an app without a name")
    return {app.info.name: _as_command(app, app.info.name) for app in apps}


app = typer.Typer(
    name="blumfeld",
    cls=LazyGroup,
    help="A log broker that speaks the Kafka wire protocol, composed from plug-ins.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _version(is_set: bool) -> None:
    if is_set:
        typer.echo(f"blumfeld {__version__}")
        raise typer.Exit


@app.callback()
def blumfeld(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Show the commands."""


@app.command("run", context_settings={"ignore_unknown_options": True, "help_option_names": []})
def run_command(arguments: Annotated[list[str] | None, typer.Argument(hidden=True)] = None) -> None:
    """Run a broker: [MANIFEST] [--set SECTION.KEY=VALUE]… [--data-dir DIR] [--listen HOST:PORT]."""
    from blumfeld.cli.run import run

    raise typer.Exit(run(arguments or []))


@app.command()
def plugins() -> None:
    """List the installed plug-ins: roles, distribution, version."""
    registry = Registry()
    rows = []
    for name in registry.names():
        origin = " and ".join(str(distribution) for distribution in registry.origins(name))
        try:
            roles = ", ".join(registry.load_any(name).roles) or "commands"
        except (ManifestError, PluginContractError) as error:
            roles = f"unusable: {error}"
        rows.append((name, roles, origin))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def run_app(arguments: Sequence[str]) -> int:
    """Run one of these commands. Returns the exit status."""
    try:
        app(list(arguments), prog_name="blumfeld", obj=RealFiles())
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return 0
