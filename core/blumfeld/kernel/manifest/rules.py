"""Rules that concern several sections of a manifest: addresses, and combinations that are impossible."""

from __future__ import annotations

import re
from collections.abc import Iterator
from posixpath import normpath

from blumfeld.config.addresses import PORT_MAX, host_and_port
from blumfeld.kernel.manifest.sections import (
    NO_PLUGIN,
    ListenerSection,
    Manifest,
    NodeSection,
    listener_sections,
)
from blumfeld.plugging.errors import ManifestError, Problem, one_of, shown
from blumfeld.spi.transport import Listener

ROLES = ("broker", "controller")
LOG_FORMATS = ("console", "json")
LOG_LEVELS = ("debug", "info", "warning", "error")

_LISTENER_NAME = re.compile(r"[A-Z0-9_]+")
_NOT_ROUTABLE = ("", "0.0.0.0", "::")


def checked_listeners(manifest: Manifest, source: str) -> tuple[Listener, ...]:
    """Returns the listeners of a manifest whose sections fit together.

    :raises ManifestError: it lists every problem that the sections show by themselves
    """
    problems = [*_node_problems(manifest), *_section_problems(manifest), *_config_problems(manifest)]
    sections = listener_sections(manifest)
    problems += _listener_problems(sections, manifest.node.roles)
    if manifest.config or "controller" not in manifest.node.roles:
        from blumfeld.kernel.manifest.quorum import quorum_problems  # not for the default node's start

        problems += quorum_problems(manifest, sections)
    if problems:
        raise ManifestError(source, problems)
    named = any(section.inter_broker for section in sections)
    first = next((section.name for section in sections if section.kind == "broker"), None)
    return tuple(_listener(s, s.inter_broker if named else s.name == first) for s in sections)


def _listener(section: ListenerSection, inter_broker: bool) -> Listener:
    host, port = host_and_port(section.bind)
    advertised: tuple[str | None, int | None] = (None, None)
    if section.advertised is not None:
        advertised = host_and_port(section.advertised)
    return Listener(
        name=section.name,
        kind=section.kind,
        host=host,
        port=port,
        advertised_host=advertised[0],
        advertised_port=advertised[1],
        inter_broker=inter_broker,
    )


def _node_problems(manifest: Manifest) -> Iterator[Problem]:
    roles = manifest.node.roles
    if not roles:
        yield Problem("node.roles", "no role", "broker, controller, or both")
    for nth, role in enumerate(roles):
        if role not in ROLES:
            yield Problem(f"node.roles[{nth}]", shown(role), one_of(role, ROLES))
        elif role in roles[:nth]:
            yield Problem(f"node.roles[{nth}]", f"{role} twice", "each role once")
    yield from _directory_problems(manifest.node)
    if manifest.nodes > 1:
        allowed = "1 for one node: `blumfeld run FILE` starts all of them, `--node ID` one of them"
        yield Problem("nodes", str(manifest.nodes), allowed)


def _directory_problems(node: NodeSection) -> Iterator[Problem]:
    """Yields problems of the data directories. Paths are compared as text; if two of them lead to one directory, its
    lock file fails the start."""
    if node.data_dirs is None:
        if node.data_dir == "":
            yield Problem("node.data_dir", '""', "the path of a directory")
        return
    if node.data_dir is not None:
        yield Problem("node.data_dir", f"{shown(node.data_dir)} beside node.data_dirs", "one of the two")
    if not node.data_dirs:
        yield Problem("node.data_dirs", "no directory", "the paths of one or more directories")
    seen: list[str] = []
    for nth, path in enumerate(node.data_dirs):
        if problem := _path_problem(path, nth, seen):
            yield problem
        seen.append(path)


def _path_problem(path: str, nth: int, before: list[str]) -> Problem | None:
    at = f"node.data_dirs[{nth}]"
    if not path:
        return Problem(at, '""', "the path of a directory")
    if "," in path:
        return Problem(at, shown(path), "a path without a comma: Kafka's log.dirs is cut there")
    for earlier, other in enumerate(before):
        one, two = normpath(path), normpath(other or ".")
        if one == two:
            return Problem(at, f"{shown(path)}, as data_dirs[{earlier}]", "each directory once")
        if _lies_in(one, two) or _lies_in(two, one):
            where = "inside" if _lies_in(one, two) else "around"
            found = f"{shown(path)}, {where} data_dirs[{earlier}] ({shown(other)})"
            return Problem(at, found, "directories of which none lies in another")
    return None


def _lies_in(inner: str, outer: str) -> bool:
    if outer == ".":
        return inner.partition("/")[0] not in ("", "..")
    return inner.startswith(outer.rstrip("/") + "/")


def _section_problems(manifest: Manifest) -> Iterator[Problem]:
    logging, groups = manifest.logging, manifest.groups
    if logging.format not in LOG_FORMATS:
        yield Problem("logging.format", shown(logging.format), one_of(logging.format, LOG_FORMATS))
    if logging.level not in LOG_LEVELS:
        yield Problem("logging.level", shown(logging.level), one_of(logging.level, LOG_LEVELS))
    for nth, plugin in enumerate(groups.plugins):
        if plugin in groups.plugins[:nth]:
            yield Problem(f"groups.plugins[{nth}]", f"{plugin} twice", "each group protocol once")
    for nth, plugin in enumerate(groups.assignors):
        if plugin in groups.assignors[:nth]:
            yield Problem(f"groups.assignors[{nth}]", f"{plugin} twice", "each plug-in once")
    for name in groups.options:
        if name not in (*groups.plugins, *groups.assignors):
            found = "options for a plug-in that isn't named"
            yield Problem(f"groups.options.{name}", found, one_of(name, (*groups.plugins, *groups.assignors)))
    observers = manifest.plugins.observers
    for nth, plugin in enumerate(observers):
        if plugin in observers[:nth]:
            yield Problem(f"plugins.observers[{nth}]", f"{plugin} twice", "each observer once")
    for name in manifest.plugins.options:
        if name not in observers:
            found = "options for a plug-in that isn't named"
            yield Problem(f"plugins.options.{name}", found, one_of(name, observers))
    if manifest.metrics.bind is not None:
        yield from _address_problems("metrics.bind", manifest.metrics.bind)
    if manifest.security.plugin is None and manifest.security.options:
        yield Problem("security.options", "options without a plug-in", "name it: security.plugin")
    if manifest.transactions.plugin == NO_PLUGIN and manifest.transactions.options:
        allowed = f'none beside transactions.plugin = "{NO_PLUGIN}"'
        yield Problem("transactions.options", "options without a plug-in", allowed)


def _config_problems(manifest: Manifest) -> Iterator[Problem]:
    for key, value in manifest.config.items():
        path = f'config."{key}"'
        if isinstance(value, dict):
            dotted = ".".join(_first_leaf(key, value))
            allowed = f'flat keys in quotes: "{dotted}" = …'
            yield Problem(f"config.{key}", "a table", allowed)
        elif (section := _section_of(key, manifest.node.roles)) is not None:
            yield Problem(path, shown(value), f"nothing here: say it in {section}")


def _section_of(key: str, roles: tuple[str, ...]) -> str | None:
    """Returns the manifest's own section for a Kafka key. Such a key is refused in ``[config]``: two places could
    disagree. A broker alone has no controller listener, so ``[config]`` is the only place for the controllers'."""
    from blumfeld.config.effects import effect_of
    from blumfeld.config.values import BROKER_CONFIGS  # imported only if there is a [config]

    if key == "controller.listener.names" and "controller" not in roles:
        return None
    return effect_of(BROKER_CONFIGS[key]).section if key in BROKER_CONFIGS else None


def _first_leaf(key: str, value: object) -> Iterator[str]:
    yield key
    if isinstance(value, dict) and value:
        inner = next(iter(value))
        yield from _first_leaf(inner, value[inner])


def _address_problems(path: str, text: str) -> Iterator[Problem]:
    try:
        host_and_port(text)
    except ValueError:
        yield Problem(path, shown(text), f"HOST:PORT with a port from 0 to {PORT_MAX}")


def _listener_problems(sections: tuple[ListenerSection, ...], roles: tuple[str, ...]) -> Iterator[Problem]:
    names: dict[str, int] = {}
    ports: dict[int, str] = {}
    for nth, section in enumerate(sections):
        path = f"network.listeners[{nth}]"
        yield from _one_listener_problems(path, section, roles)
        if section.name in names:
            found = f"{shown(section.name)}, as listeners[{names[section.name]}]"
            yield Problem(f"{path}.name", found, "a name of its own for each listener")
        names.setdefault(section.name, nth)
        port = _port(section.bind)
        if port in ports:
            found = f"port {port}, as {ports[port]}"
            yield Problem(f"{path}.bind", found, "a port of its own for each listener, or 0")
        if port:
            ports.setdefault(port, section.name)
    inter_broker = [section.name for section in sections if section.inter_broker]
    if len(inter_broker) > 1:
        found = " and ".join(inter_broker) + " with inter_broker"
        yield Problem("network.listeners", found, "one listener that other brokers come in by")
    if "broker" in roles and not any(section.kind == "broker" for section in sections):
        yield Problem("network.listeners", "no listener of kind broker", "one at least: the node is a broker")
    if not sections and "broker" not in roles:
        yield Problem("network.listeners", "no listener", "one of kind controller at least")


def _port(bind: str) -> int:
    try:
        return host_and_port(bind)[1]
    except ValueError:
        return 0


def _one_listener_problems(path: str, section: ListenerSection, roles: tuple[str, ...]) -> Iterator[Problem]:
    if not _LISTENER_NAME.fullmatch(section.name):
        yield Problem(f"{path}.name", shown(section.name), "capital letters, digits and _")
    if section.kind not in ROLES:
        yield Problem(f"{path}.kind", shown(section.kind), one_of(section.kind, ROLES))
    elif section.kind not in roles:
        found = f"{section.kind}, a role that the node doesn't have"
        yield Problem(f"{path}.kind", found, ", ".join(roles))
    if section.inter_broker and section.kind != "broker":
        yield Problem(f"{path}.inter_broker", "true", "only on a listener of kind broker")
    yield from _address_problems(f"{path}.bind", section.bind)
    if section.advertised is not None:
        yield from _address_problems(f"{path}.advertised", section.advertised)
    host = section.bind.rpartition(":")[0].strip("[]")
    if section.advertised is None and host in _NOT_ROUTABLE:
        found = f"none, with bind {shown(section.bind)}"
        yield Problem(f"{path}.advertised", found, "a HOST:PORT that clients can connect to")
