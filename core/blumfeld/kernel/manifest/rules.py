"""Rules that concern several sections of a manifest: addresses, and combinations that are impossible."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from posixpath import normpath

from blumfeld.config.addresses import PORT_MAX, host_and_port
from blumfeld.kernel.identity import is_cluster_id
from blumfeld.kernel.manifest.sections import (
    NO_PLUGIN,
    ListenerSection,
    Manifest,
    NodeSection,
    listener_sections,
)
from blumfeld.plugging.errors import Faults, Problem, one_of, shown
from blumfeld.spi.transport import Listener

ROLES = ("broker", "controller")
LOG_FORMATS = ("console", "json")
LOG_LEVELS = ("debug", "info", "warning", "error")

_LISTENER_NAME = re.compile(r"[A-Z0-9_]+")
_SHELL_VARIABLE = re.compile(r"(^|/)\$\w")
_NOT_ROUTABLE = ("", "0.0.0.0", "::")


def checked_listeners(manifest: Manifest, faults: Faults, *, quorum: bool = True) -> tuple[Listener, ...]:
    """Returns the listeners of a manifest; none if their addresses can't be used.

    :param quorum: whether the consensus has a metadata quorum, which the manifest must name
    :param faults: gets every problem that the sections show by themselves. Values that are known to be wrong are not
        compared with others
    """
    sections = listener_sections(manifest)
    listeners_known = manifest.network.listeners is not None or faults.sound("network.listeners")
    faults.add(_node_problems(manifest.node))
    roles = manifest.node.roles if faults.sound("node.roles") else None
    faults.add(_section_problems(manifest))
    faults.add(_option_problems(manifest, faults))
    faults.add(_config_problems(manifest, roles))
    if listeners_known:
        faults.add(_listener_problems(sections, roles))
        faults.add(_metrics_problems(manifest.metrics.bind, sections))
    if quorum and (manifest.config or "controller" not in manifest.node.roles):
        from blumfeld.kernel.manifest.quorum import (
            PLACES,
            quorum_problems,
        )  # not for the default node's start

        if faults.sound("node.id", "node.roles", "network.listeners", *PLACES):
            faults.add(quorum_problems(manifest, sections))
    if not faults.sound("network.listeners"):
        return ()
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


def _node_problems(node: NodeSection) -> Iterator[Problem]:
    roles = node.roles
    if not roles:
        yield Problem("node.roles", "no role", "broker, controller, or both")
    for nth, role in enumerate(roles):
        if role not in ROLES:
            yield Problem(f"node.roles[{nth}]", shown(role), one_of(role, ROLES))
        elif role in roles[:nth]:
            yield Problem(f"node.roles[{nth}]", f"{role} twice", "each role once")
    yield from _directory_problems(node)
    if node.cluster_id is not None and not is_cluster_id(node.cluster_id):
        allowed = "1 to 64 letters, digits, - and _; Kafka's own have 22"
        yield Problem("node.cluster_id", shown(node.cluster_id), allowed)


def _directory_problems(node: NodeSection) -> Iterator[Problem]:
    """Yields problems of the data directories. Paths are compared as text; if two of them lead to one directory, its
    lock file fails the start."""
    if node.data_dirs is None:
        if node.data_dir is not None and (problem := _own_path_problem("node.data_dir", node.data_dir)):
            yield problem
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
    if problem := _own_path_problem(at, path):
        return problem
    if "," in path:
        return Problem(at, shown(path), "a path without a comma: Kafka's log.dirs is cut there")
    for earlier, other in enumerate(before):
        own_path, other_path = normpath(path), normpath(other or ".")
        if own_path == other_path:
            return Problem(at, f"{shown(path)}, as data_dirs[{earlier}]", "each directory once")
        if _lies_in(own_path, other_path) or _lies_in(other_path, own_path):
            where = "inside" if _lies_in(own_path, other_path) else "around"
            overlap = f"{shown(path)}, {where} data_dirs[{earlier}] ({shown(other)})"
            return Problem(at, overlap, "directories of which none lies in another")
    return None


def _own_path_problem(at: str, path: str) -> Problem | None:
    if not path:
        return Problem(at, '""', "the path of a directory")
    # Braced variables are refused in every text of the manifest.
    if path.partition("/")[0].startswith("~") or _SHELL_VARIABLE.search(path):
        return Problem(
            at, shown(path), "a path as it is: a manifest expands nothing, a shell does (--data-dir)"
        )
    return None


def _lies_in(inner: str, outer: str) -> bool:
    if outer == ".":
        return inner.partition("/")[0] not in ("", "..")
    return inner.startswith(outer.rstrip("/") + "/")


def _section_problems(manifest: Manifest) -> Iterator[Problem]:
    logging, groups, observers = manifest.logging, manifest.groups, manifest.plugins.observers
    if manifest.nodes > 1:
        allowed = "1 for one node: `blumfeld run FILE` starts all of them, `--node ID` one of them"
        yield Problem("nodes", str(manifest.nodes), allowed)
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
    for nth, plugin in enumerate(observers):
        if plugin in observers[:nth]:
            yield Problem(f"plugins.observers[{nth}]", f"{plugin} twice", "each observer once")
    for nth, plugin in enumerate(manifest.plugins.stores):
        if plugin in manifest.plugins.stores[:nth]:
            yield Problem(f"plugins.stores[{nth}]", f"{plugin} twice", "each plug-in once")


def _option_problems(manifest: Manifest, faults: Faults) -> Iterator[Problem]:
    """Yields options of plug-ins that no section names."""
    groups, plugins = manifest.groups, manifest.plugins
    if faults.sound("groups.plugins", "groups.assignors"):
        yield from _unnamed("groups", groups.options, (*groups.plugins, *groups.assignors))
    if faults.sound("plugins.observers", "plugins.stores"):
        yield from _unnamed("plugins", plugins.options, (*plugins.observers, *plugins.stores))
    security, transactions = manifest.security, manifest.transactions
    for section, options in (("security", security), ("quotas", manifest.quotas)):
        if options.plugin is None and options.options and faults.sound(f"{section}.plugin"):
            yield Problem(f"{section}.options", "options without a plug-in", f"name it: {section}.plugin")
    if security.plugin is None:
        for key in ("authorizer", "authenticators"):
            if getattr(security, key):
                found = "a value without a security plug-in, which would ask nobody"
                yield Problem(f"security.{key}", found, "name it: security.plugin")
    if faults.sound("security.authorizer", "security.authenticators"):
        named = (*filter(None, (security.authorizer,)), *security.authenticators)
        for name in security.plugin_options:
            if name not in named:
                stray = "options for a plug-in that isn't named"
                yield Problem(f"security.plugin_options.{name}", stray, one_of(name, named))
    if transactions.plugin == NO_PLUGIN and transactions.options:
        allowed = f'none beside transactions.plugin = "{NO_PLUGIN}"'
        yield Problem("transactions.options", "options without a plug-in", allowed)


def _unnamed(section: str, options: Mapping[str, object], named: Sequence[str]) -> Iterator[Problem]:
    for name in options:
        if name not in named:
            stray_options = "options for a plug-in that isn't named"
            yield Problem(f"{section}.options.{name}", stray_options, one_of(name, named))


def _config_problems(manifest: Manifest, roles: tuple[str, ...] | None) -> Iterator[Problem]:
    for key, value in manifest.config.items():
        path = f'config."{key}"'
        if isinstance(value, dict):
            dotted = ".".join(_first_leaf(key, value))
            allowed = f'flat keys in quotes: "{dotted}" = …'
            yield Problem(f"config.{key}", "a table", allowed)
        elif (section := _section_of(key, roles)) is not None:
            yield Problem(path, shown(value), f"nothing here: say it in {section}")


def _section_of(key: str, roles: tuple[str, ...] | None) -> str | None:
    """Returns the manifest's own section for a Kafka key. Such a key is refused in ``[config]``: two places could
    disagree. A broker alone has no controller listener, so ``[config]`` is the only place for the controllers'."""
    from blumfeld.config.effects import effect_of
    from blumfeld.config.values import BROKER_CONFIGS  # imported only if there is a [config]

    if key == "controller.listener.names" and (roles is None or "controller" not in roles):
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


def _listener_problems(
    sections: tuple[ListenerSection, ...], roles: tuple[str, ...] | None
) -> Iterator[Problem]:
    names: dict[str, int] = {}
    ports: dict[int, str] = {}
    for nth, section in enumerate(sections):
        path = f"network.listeners[{nth}]"
        yield from _one_listener_problems(path, section, roles)
        if section.name in names:
            mistake = f"{shown(section.name)}, as listeners[{names[section.name]}]"
            yield Problem(f"{path}.name", mistake, "a name of its own for each listener")
        names.setdefault(section.name, nth)
        port = _port(section.bind)
        if port in ports:
            mistake = f"port {port}, as {ports[port]}"
            yield Problem(f"{path}.bind", mistake, "a port of its own for each listener, or 0")
        if port:
            ports.setdefault(port, section.name)
    inter_broker = [section.name for section in sections if section.inter_broker]
    if len(inter_broker) > 1:
        mistake = " and ".join(inter_broker) + " with inter_broker"
        yield Problem("network.listeners", mistake, "one listener that other brokers come in by")
    if roles is None or not all(section.kind in ROLES for section in sections):
        return
    if "broker" in roles and not any(section.kind == "broker" for section in sections):
        yield Problem("network.listeners", "no listener of kind broker", "one at least: the node is a broker")
    if not sections and "broker" not in roles:
        yield Problem("network.listeners", "no listener", "one of kind controller at least")


def _metrics_problems(bind: str | None, sections: tuple[ListenerSection, ...]) -> Iterator[Problem]:
    if bind is None:
        return
    yield from _address_problems("metrics.bind", bind)
    port = _port(bind)
    for section in sections:
        if port and port == _port(section.bind):
            yield Problem("metrics.bind", f"port {port}, as {section.name}", "a port of its own, or 0")


def _port(bind: str) -> int:
    try:
        return host_and_port(bind)[1]
    except ValueError:
        return 0


def _one_listener_problems(
    path: str, section: ListenerSection, roles: tuple[str, ...] | None
) -> Iterator[Problem]:
    if not _LISTENER_NAME.fullmatch(section.name):
        yield Problem(f"{path}.name", shown(section.name), "capital letters, digits and _")
    if section.kind not in ROLES:
        yield Problem(f"{path}.kind", shown(section.kind), one_of(section.kind, ROLES))
    elif roles is not None and section.kind not in roles:
        mistake = f"{section.kind}, a role that the node doesn't have"
        yield Problem(f"{path}.kind", mistake, ", ".join(roles))
    if section.inter_broker and section.kind != "broker":
        yield Problem(f"{path}.inter_broker", "true", "only on a listener of kind broker")
    wrong_bind = list(_address_problems(f"{path}.bind", section.bind))
    yield from wrong_bind
    if section.advertised is not None:
        yield from _address_problems(f"{path}.advertised", section.advertised)
    host = section.bind.rpartition(":")[0].strip("[]")
    if section.advertised is None and host in _NOT_ROUTABLE and not wrong_bind:
        mistake = f"none, with bind {shown(section.bind)}"
        yield Problem(f"{path}.advertised", mistake, "a HOST:PORT that clients can connect to")
