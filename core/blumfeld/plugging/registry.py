"""The installed plug-ins: entry points of the group ``blumfeld.plugins``. Listing them imports none."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Any, cast

import msgspec

from blumfeld import spi
from blumfeld.plugging.errors import ManifestError, Problem, closest, one_of
from blumfeld.spi.hooks import Plugin
from blumfeld.wire.errors import PluginContractError

GROUP = "blumfeld.plugins"
ROLES = (
    "network",
    "authenticators",
    "authorizer",
    "security",
    "stores",
    "storage",
    "migration",
    "consensus",
    "replication",
    "groups",
    "assignors",
    "transactions",
    "quotas",
    "observers",
    "sink",
    "decoders",
)
"""The roles that a plug-in may fill, in the order in which parts are made."""
_SEE = " (docs/plugin-api.md)"
_NONE_INSTALLED = "no plug-in is installed"


class Origin(msgspec.Struct, frozen=True):
    """The distribution that brings a plug-in."""

    distribution: str
    version: str

    def __str__(self) -> str:
        return f"{self.distribution} {self.version}".rstrip()


class Registry:
    """All entry points of the group. Only :meth:`load` imports, and only the plug-in that is asked for."""

    def __init__(self, points: Iterable[EntryPoint] | None = None) -> None:
        installed = entry_points(group=GROUP) if points is None else points
        self._points: dict[str, list[EntryPoint]] = {}
        for point in installed:
            self._points.setdefault(point.name, []).append(point)

    def names(self) -> list[str]:
        """Names of all plug-ins, sorted."""
        return sorted(self._points)

    def origins(self, name: str) -> list[Origin]:
        """Returns the distributions that bring a plug-in of this name: one, unless several use the same name."""
        return [_origin(point) for point in self._points.get(name, [])]

    def load(self, name: str, role: str, source: str, path: str) -> type[Plugin]:
        """Import the plug-in that the manifest names for a role, at ``path``.

        :raises ManifestError: it isn't installed, twice, can't be imported, or doesn't fill the role
        :raises PluginContractError: what the entry point names is no plug-in
        """
        if name not in self._points:
            none = f"no installed plug-in fills {role}" if self._points else _NONE_INSTALLED
            raise ManifestError(source, [_absent(name, path, self._filling(role), none)])
        checked = self.load_any(name, source, path)
        if role not in checked.roles:
            mistake = f'"{name}", which fills {" and ".join(checked.roles) or "no role"}'
            fitting = self._filling(role)
            allowed = f"a plug-in for {role}: {one_of('', fitting)}"
            raise ManifestError(source, [Problem(path, mistake, allowed)])
        return checked

    def load_any(self, name: str, source: str = "installed plug-ins", path: str = "") -> type[Plugin]:
        """As :meth:`load`, for a plug-in of any role."""
        points = self._points.get(name, [])
        if len(points) != 1:
            raise ManifestError(source, [self._not_one(name, path, points)])
        try:
            plugin = points[0].load()
        except (ImportError, AttributeError) as error:
            mistake = f'"{name}" of {_origin(points[0])}, which can\'t be imported ({error})'
            allowed = "a plug-in whose requirements are installed"
            if (getattr(error, "name", None) or "").partition(".")[0] == "blumfeld":
                allowed = f"a plug-in that was written for spi {spi.VERSION}, which this Blumfeld has{_SEE}"
            raise ManifestError(source, [Problem(path, mistake, allowed)]) from error
        checked = _checked(plugin, name, points[0])
        problem = _version_problem(checked, path, f'"{name}" of {_origin(points[0])}')
        if problem is not None:
            raise ManifestError(source, [problem])
        return checked

    def _not_one(self, name: str, path: str, points: Sequence[EntryPoint]) -> Problem:
        if not points:
            return _absent(name, path, self.names(), _NONE_INSTALLED)
        brought = " and ".join(str(_origin(point)) for point in points)
        return Problem(
            path, f'"{name}" of {brought}', "one distribution for each plug-in name; uninstall one"
        )

    def _filling(self, role: str) -> list[str]:
        fitting = []
        for name, points in sorted(self._points.items()):
            try:
                if role in points[0].load().roles:
                    fitting.append(name)
            except (ImportError, AttributeError):
                continue  # the user didn't ask about this plug-in, so its fault must not stop them
        return fitting


def _absent(name: str, path: str, installed: Sequence[str], none: str) -> Problem:
    """Returns the problem of a plug-in that isn't installed. ``none`` says that nothing else is installed either."""
    from blumfeld.plugging.published import PUBLISHED, how_to_install  # a good start never needs it

    remedy = how_to_install(name)
    if remedy:
        allowed = "; or ".join([", ".join(installed), remedy] if installed else [remedy])
    else:
        allowed = (", ".join(installed) or none) + closest(name, {*installed, *PUBLISHED})
    return Problem(path, f'"{name}", which isn\'t installed', allowed)


def _origin(point: EntryPoint) -> Origin:
    if point.dist is None:
        return Origin("unknown", "")
    head = (point.dist.read_text("METADATA") or "").partition("\n\n")[0]
    fields = {name: value.strip() for name, _, value in (line.partition(":") for line in head.splitlines())}
    if "Name" in fields and "Version" in fields:  # to parse the whole of it takes ten times as long
        return Origin(fields["Name"], fields["Version"])
    return Origin(point.dist.name, point.dist.version)


def _version_problem(plugin: type[Plugin], path: str, name: str) -> Problem | None:
    """Returns what is wrong with the version of spi that the plug-in requires, if it says one."""
    required = getattr(plugin, "requires_spi", None)
    if required is None:
        return None
    mistake = f"{name}, which was written for spi {required}"
    if not isinstance(required, str) or not re.fullmatch(r"\d+\.\d+", required):
        return Problem(path, mistake, f'requires_spi = "MAJOR.MINOR", as in "{spi.VERSION}"')
    major, minor = map(int, required.split("."))
    here, newest = map(int, spi.VERSION.split("."))
    if major == here and minor <= newest:
        return None
    remedy = "install a newer one of it" if major < here else "install a newer Blumfeld"
    served = spi.VERSION if newest == 0 else f"{here}.0 to {spi.VERSION}"
    return Problem(path, mistake, f"spi {served}, which this Blumfeld has: {remedy}{_SEE}")


def _checked(plugin: Any, name: str, point: EntryPoint) -> type[Plugin]:
    """Check the plug-in's class against the contract of ``spi.hooks.Plugin``, and return it."""
    where = f"plug-in {name} ({point.value} of {_origin(point)})"
    if not isinstance(plugin, type):
        raise PluginContractError(f"{where}: the entry point names {plugin!r}, not a class")
    options = getattr(plugin, "options_class", None)
    if not (isinstance(options, type) and issubclass(options, msgspec.Struct)):
        raise PluginContractError(f"{where}: options_class is {options!r}, not a msgspec.Struct type")
    roles = getattr(plugin, "roles", None)
    if not isinstance(roles, tuple) or not all(role in ROLES for role in roles):
        allowed = f"a tuple of {', '.join(ROLES)}, or () for a plug-in of commands alone"
        raise PluginContractError(f"{where}: roles is {roles!r}, not {allowed}")
    if not roles and not hasattr(plugin, "blumfeld_cli_commands"):
        raise PluginContractError(
            f"{where}: roles is empty, and it has no blumfeld_cli_commands: it does nothing"
        )
    return cast("type[Plugin]", plugin)
