"""``blumfeld plan``: describes the node that a manifest results in. It makes the node and opens nothing."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from blumfeld.config.effects import effect_of
from blumfeld.config.values import BROKER_CONFIGS, Source
from blumfeld.kernel.composing.plan import Plan
from blumfeld.kernel.manifest.kafka_config import keys_without_effect
from blumfeld.kernel.node import MakeBroker, Node, make_broker
from blumfeld.kernel.runtime.short_lived_runtime import short_lived_runtime
from blumfeld.kernel.watching.event_log import EventLogs, Render
from blumfeld.spi.transport import Listener
from blumfeld.wire.api import API_BY_KEY

LINE_CHARS = 90
"""Characters of a line. A longer list is continued on the next one."""

NOT_YET = (
    ("transactions", "a transactional.id gets TRANSACTIONAL_ID_AUTHORIZATION_FAILED"),
    ("security", "every client is User:ANONYMOUS and may do everything, on PLAINTEXT only"),
    ("groups", "no consumer groups: FindCoordinator is not answered"),
)
"""Roles that may be empty, each with what a client sees then."""


async def describe(plan: Plan, make_broker: MakeBroker = make_broker) -> str:
    """Returns the description, for a person. Call it inside a running loop.

    :raises PluginContractError: a plug-in broke its contract while parts were made
    """
    async with short_lived_runtime() as runtime:
        node = Node(plan, runtime, EventLogs(_silence), make_broker)
        return "\n".join(_lines(node)) + "\n"


def describe_nodes(plans: Sequence[Plan]) -> str:
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


def _silence() -> Render:
    return lambda *_: None


def _lines(node: Node) -> Iterator[str]:
    plan = node.plan
    section = plan.manifest.node
    roles, data = ", ".join(section.roles), " and ".join(section.directories)
    yield f"node {section.id} ({roles}), data in {data}, from {plan.source}"
    if len(section.directories) > 1:
        yield ""
        yield "log directories"
        yield from _table(_directory_rows(section.directories))
    yield ""
    yield "plug-ins"
    yield from _table(_plugin_rows(node))
    yield ""
    yield "listeners"
    yield from _table(_listener_row(listener) for listener in plan.listeners)
    for kind in sorted({listener.kind for listener in plan.listeners}):
        yield ""
        yield f"APIs on {kind} listeners"
        yield from _table(_api_rows(node, kind))
    if "broker" in section.roles:
        yield ""
        yield "an ack means"
        yield from _table(_ack_rows(node))
    configured = list(_config_rows(node))
    if configured:
        yield ""
        yield "configuration, other than Kafka's defaults"
        yield from _table(configured)
    ineffective = list(_ineffective_rows(node.plan))
    if ineffective:
        yield ""
        yield "configuration without effect here"
        yield from _table(ineffective)
    if plan.left_out:
        yield ""
        yield "left out: this consensus has no metadata quorum"
        yield from _table((place,) for place in plan.left_out)
    yield ""
    yield "this build does not"
    yield from _table(_missing_rows(node))


def _table(rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    kept = list(rows)
    widths = [max(map(len, column)) for column in zip(*kept, strict=True)]
    for row in kept:
        yield "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _directory_rows(directories: Sequence[str]) -> Iterator[tuple[str, ...]]:
    yield (directories[0], "the cluster's metadata, and partitions: the node stops if it fails")
    for path in directories[1:]:
        yield (path, "partitions: only they go offline if it fails")


def _plugin_rows(node: Node) -> Iterator[tuple[str, ...]]:
    driver = node.composition.transport.driver()
    for plugin in node.plan.plugins:
        origin = " and ".join(str(distribution) for distribution in node.plan.registry.origins(plugin.name))
        notes = {"network": driver, "sink": "for `blumfeld archive`: the broker does nothing with it"}
        yield (plugin.role, plugin.name, origin, notes.get(plugin.role, ""))


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


PROTOCOL_NOTES = {
    "SSL": "SSL: TLS, for which reads are copied",
    "SASL_PLAINTEXT": "SASL_PLAINTEXT: SASL without TLS",
    "SASL_SSL": "SASL_SSL: SASL in TLS, for which reads are copied",
}


def address_text(host: str, port: int) -> str:
    """Returns ``HOST:PORT``, with an IPv6 host in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _api_rows(node: Node, kind: str) -> Iterator[tuple[str, ...]]:
    for key, (low, high) in sorted(node.broker.advertised(kind).items()):
        versions = str(low) if low == high else f"{low}–{high}"
        yield (f"{key:>3}", API_BY_KEY[key].name, versions)


def _ack_rows(node: Node) -> Iterator[tuple[str, ...]]:
    yield ("acks=0", "nothing")
    yield ("acks=1", f"written: {node.composition.storage.promise()}")
    yield ("acks=all", node.composition.replication.promise())


def _config_rows(node: Node) -> Iterator[tuple[str, ...]]:
    config = node.plan.config
    for name in sorted(node.plan.manifest.config):
        shown = next((s.value for s in config.synonyms(name) if s.source is Source.STATIC_BROKER), None)
        yield (name, "hidden" if shown is None else shown)


def _ineffective_rows(plan: Plan) -> Iterator[tuple[str, ...]]:
    abilities = plan.config.abilities
    for name in keys_without_effect(plan.manifest, abilities):
        yield (name, effect_of(BROKER_CONFIGS.find(name), abilities).where)


def _missing_rows(node: Node) -> Iterator[tuple[str, ...]]:
    filled = {plugin.role for plugin in node.plan.plugins}
    is_broker = "broker" in node.plan.manifest.node.roles
    for role, meaning in NOT_YET:
        if role not in filled and (is_broker or role == "security"):
            yield (role, meaning)
    if not is_broker:
        return
    if not node.composition.storage.compacts:
        yield (
            "compaction",
            "a topic with cleanup.policy=compact keeps every record: this storage does not compact",
        )
    if not hasattr(node.composition.storage.log_class, "drop_segments"):
        yield (
            "retention",
            "retention.ms and retention.bytes take nothing away: the logs of this storage have no segments",
        )
    served = node.broker.advertised("broker")
    missing = [api.name for key, api in API_BY_KEY.items() if "broker" in api.listeners and key not in served]
    for nth, line in enumerate(textwrap.wrap(", ".join(missing), LINE_CHARS)):
        yield ("" if nth else "APIs", line)
