"""A plan's document as text for a person. Whatever it says of a build stands in the document."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from blumfeld.config.addresses import address_text
from blumfeld.kernel.composing.plan import Plan
from blumfeld.kernel.description.document import ApiEntry, PlanDocument
from blumfeld.spi.transport import Listener

LINE_CHARS = 90
"""Characters of a line. A longer list is continued on the next one."""
PROTOCOL_NOTES = {
    "SSL": "SSL: TLS, for which reads are copied",
    "SASL_PLAINTEXT": "SASL_PLAINTEXT: SASL without TLS",
    "SASL_SSL": "SASL_SSL: SASL in TLS, for which reads are copied",
}
SINK_NOTE = "for `blumfeld archive`: the broker does nothing with it"


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a node of the build runs: what its document doesn't hold."""

    source: str
    """The manifest's name."""
    node_id: int
    directories: tuple[str, ...]
    listeners: tuple[Listener, ...]
    driver: str
    """How the transport reaches the network on this machine."""
    warnings: tuple[str, ...] = ()
    """What the start would warn of, as far as it is known before anything opens."""


def place_of(plan: Plan, driver: str, warnings: Iterable[str] = ()) -> Place:
    """Returns where the node of a plan runs."""
    node = plan.manifest.node
    return Place(
        source=plan.source,
        node_id=node.id,
        directories=tuple(node.directories),
        listeners=plan.listeners,
        driver=driver,
        warnings=tuple(warnings),
    )


def document_text(document: PlanDocument, place: Place | None = None, origin: str = "") -> str:
    """Returns the description, for a person.

    :param place: of the node; ``None`` for a document alone
    :param origin: where a document alone came from
    """
    return "\n".join(_lines(document, place, origin)) + "\n"


def nodes_text(plans: Sequence[Plan]) -> str:
    """Returns the nodes of a manifest with ``nodes = N`` as a table, for a person. The first node is described next."""
    rows = [("node", "roles", "listeners", "data")]
    for plan in plans:
        node = plan.manifest.node
        listeners = ", ".join(
            f"{listener.name} {address_text(listener.host, listener.port)}" for listener in plan.listeners
        )
        rows.append((str(node.id), ", ".join(node.roles), listeners, " and ".join(node.directories)))
    head = f"{len(plans)} nodes from {plans[0].source}, a process each; `blumfeld run` starts all of them"
    return "\n".join([head, *_table(rows), "", "the first of them:"])


def _lines(document: PlanDocument, place: Place | None, origin: str) -> Iterator[str]:
    roles = ", ".join(document.roles)
    if place is None:
        yield f"{roles}, {origin}"
    else:
        data = " and ".join(place.directories)
        yield f"node {place.node_id} ({roles}), data in {data}, from {place.source}"
    yield made_of(document)
    if place is not None and len(place.directories) > 1:
        yield from _section("log directories", _directory_rows(place.directories))
    yield from _section("plug-ins", _plugin_rows(document, place))
    if place is not None:
        yield from _section("listeners", map(_listener_row, place.listeners))
        yield from _section("warnings", _warning_rows(place.warnings))
    for kind, apis in document.apis.items():
        yield from _section(f"APIs on {kind} listeners", map(_api_row, apis))
    yield from _section("an ack means", ((f"acks={acks}", means) for acks, means in document.acks.items()))
    yield from _section("features, their levels, and the level of a new cluster", _feature_rows(document))
    yield from _section("configuration, other than Kafka's defaults", _pairs(document.configuration))
    yield from _section("configuration without effect here", _pairs(document.without_effect))
    head = "left out: this consensus has no metadata quorum"
    yield from _section(head, ((place_name,) for place_name in document.left_out))
    yield from _section("this build does not", _absent_rows(document))


def made_of(document: PlanDocument) -> str:
    """Returns the line that names the build: its versions, its name and its manifest."""
    parts = [f"Blumfeld {document.version}", f"spi {document.spi}"]
    if document.build is not None:
        parts.append(f"build {document.build}")
    if document.manifest is not None:
        parts.append(f"manifest {document.manifest}")
    return ", ".join(parts)


def _section(head: str, rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """Yields a section; nothing without rows."""
    kept = list(rows)
    if kept:
        yield ""
        yield head
        yield from _table(kept)


def _table(rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    kept = list(rows)
    widths = [max(map(len, column)) for column in zip(*kept, strict=True)]
    for row in kept:
        yield "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _pairs(values: dict[str, str]) -> Iterable[tuple[str, ...]]:
    return values.items()


def _directory_rows(directories: Sequence[str]) -> Iterator[tuple[str, ...]]:
    yield (directories[0], "the cluster's metadata, and partitions: the node stops if it fails")
    for path in directories[1:]:
        yield (path, "partitions: only they go offline if it fails")


def _plugin_rows(document: PlanDocument, place: Place | None) -> Iterator[tuple[str, ...]]:
    notes = {"sink": SINK_NOTE} if place is None else {"network": place.driver, "sink": SINK_NOTE}
    for plugin in document.plugins:
        origin = f"{plugin.distribution} {plugin.version}".rstrip()
        options = ", ".join(f"{path}={value}" for path, value in plugin.options.items())
        yield (plugin.role, plugin.name, origin, notes.get(plugin.role, ""), options)


def _listener_row(listener: Listener) -> tuple[str, ...]:
    bound = address_text(listener.host, listener.port)
    advertised = address_text(
        listener.advertised_host or listener.host, listener.advertised_port or listener.port
    )
    port = "any free port" if listener.port == 0 else bound
    where = f"{listener.host}, any free port" if listener.port == 0 else bound
    notes = [] if advertised in (bound, port) else [f"advertised as {advertised}"]
    if listener.inter_broker:
        notes.append("brokers come in by it")
    if listener.security_protocol != "PLAINTEXT":
        notes.append(PROTOCOL_NOTES[listener.security_protocol])
    return (listener.name, listener.kind, where, ", ".join(notes))


def _warning_rows(warnings: Iterable[str]) -> Iterator[tuple[str, ...]]:
    for warning in warnings:
        for nth, line in enumerate(textwrap.wrap(warning, LINE_CHARS)):
            yield (f"  {line}" if nth else line,)


def versions_text(low: int, high: int) -> str:
    """Returns a range of versions or levels."""
    return str(low) if low == high else f"{low}–{high}"


def _api_row(api: ApiEntry) -> tuple[str, ...]:
    return (f"{api.key:>3}", api.name, versions_text(api.min_version, api.max_version))


def _feature_rows(document: PlanDocument) -> Iterator[tuple[str, ...]]:
    for feature in document.features:
        levels = versions_text(feature.min_level, feature.max_level)
        yield (feature.name, levels, str(feature.default_level))


def _absent_rows(document: PlanDocument) -> Iterator[tuple[str, ...]]:
    yield from document.absent.items()
    for nth, line in enumerate(textwrap.wrap(", ".join(document.absent_apis), LINE_CHARS)):
        yield ("" if nth else "APIs", line)
