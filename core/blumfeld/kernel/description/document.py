"""What a build is made of and what it promises, as a value: ``plan.json``, ``blumfeld plan --json``, ``/build``, and
the key ``blumfeld.build``.

Nothing in it depends on where the build runs, on its addresses or on its directories. So a running node's document is
the one that its artefact has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, distribution
from typing import TYPE_CHECKING, Any, Literal, get_origin

import msgspec

from blumfeld import __version__, spi
from blumfeld.config.definitions import BROKER_CONFIGS, GROUP_CONFIGS, TOPIC_CONFIGS, Definitions, render
from blumfeld.config.effects import HONOURED, effect_of
from blumfeld.config.values import Source
from blumfeld.kernel.description.code_digest import code_digest
from blumfeld.kernel.manifest.kafka_config import keys_without_effect
from blumfeld.metadata.brokers.feature_levels import supported_features
from blumfeld.wire.api import API_BY_KEY

if TYPE_CHECKING:
    from collections.abc import Set

    from blumfeld.broker.broker import Broker
    from blumfeld.kernel.composing.composition import NodeComposition
    from blumfeld.kernel.composing.plan import Plan
    from blumfeld.plugging.plugins import PlannedPlugin
    from blumfeld.plugging.registry import Registry

FORMAT = 1
"""Raised when a reader of an older document could misunderstand a newer one. A new field alone doesn't raise it."""
CORE = "blumfeld"
HIDDEN = "hidden"
"""Stands for a value that may be a secret or a place of one machine: a password, and any free text of an option."""

TRANSACTIONS_ABSENT = "a transactional.id gets TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
SECURITY_ABSENT = "every client is User:ANONYMOUS and may do everything, on PLAINTEXT only"
GROUPS_ABSENT = "no consumer groups: FindCoordinator is not answered"
ABSENT_ROLES = (
    ("transactions", TRANSACTIONS_ABSENT),
    ("security", SECURITY_ABSENT),
    ("groups", GROUPS_ABSENT),
)
"""Roles that may be empty, each with what a client sees then."""
COMPACTION_ABSENT = "a topic with cleanup.policy=compact keeps every record: this storage does not compact"
RETENTION_ABSENT = (
    "retention.ms and retention.bytes take nothing away: the logs of this storage have no segments"
)


class PluginEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A plug-in of the build."""

    role: str
    """The manifest's section; ``local_storage`` for a storage that another one wraps."""
    name: str
    distribution: str
    version: str
    digest: str | None = None
    """Digest of the code (:mod:`~blumfeld.kernel.description.code_digest`); ``None``: installed editable."""
    options: dict[str, Any] = {}
    """Options other than their defaults, by their path. Free text is :data:`HIDDEN`."""
    option_defaults: dict[str, Any] = {}
    """Defaults of the other options."""


class ApiEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An API with its versions, as ApiVersions says."""

    key: int
    name: str
    min_version: int
    max_version: int


class FeatureEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A feature (KIP-584), with the levels that the build supports and the one that it formats a new cluster with."""

    name: str
    min_level: int
    max_level: int
    default_level: int


class PlanDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What a build is made of and what it promises. Lists and tables are sorted, except that plug-ins stand in the
    order in which their parts are made. A reader ignores fields that it doesn't know.
    """

    format: int = FORMAT
    version: str
    """Blumfeld's version."""
    spi: str
    digest: str | None = None
    """Digest of Blumfeld's code, as a plug-in's."""
    build: str | None = None
    """Name of the build; ``None`` if it is no artefact."""
    manifest: str | None = None
    """``sha256:…`` of the manifest's bytes; ``None`` without a file."""
    roles: tuple[str, ...]
    plugins: tuple[PluginEntry, ...]
    apis: dict[str, tuple[ApiEntry, ...]]
    """Kind of listener → its APIs."""
    acks: dict[str, str]
    """``acks`` of a producer → its promise. Empty for a controller."""
    features: tuple[FeatureEntry, ...]
    configuration: dict[str, str]
    """Kafka's keys that the manifest sets, without those that have Kafka's default; a secret is :data:`HIDDEN`."""
    without_effect: dict[str, str]
    """Keys of the manifest that have no effect here → the reason."""
    left_out: tuple[str, ...]
    """Places of the manifest that mean nothing with this consensus."""
    absent: dict[str, str]
    """What the build does not do → what a client sees instead."""
    absent_apis: tuple[str, ...]
    """Kafka's APIs that a broker has and this build has not."""
    defaults: dict[str, str]
    """Defaults of the keys that this build honours. Those of topics and groups begin with ``topic `` and ``group ``."""


def encode_document(document: PlanDocument) -> bytes:
    """Returns the document as JSON, the same bytes for equal documents."""
    return msgspec.json.encode(document, order="deterministic")


def decode_document(data: bytes | str) -> PlanDocument:
    """Returns the document in JSON.

    :raises ValueError: it is no such document, or one of a later format
    """
    try:
        document = msgspec.json.decode(data, type=PlanDocument)
    except msgspec.MsgspecError as error:
        raise ValueError(f"no plan: {error}") from None
    if document.format > FORMAT:
        raise ValueError(
            f"a plan of format {document.format}, and this Blumfeld reads up to {FORMAT}: use a newer one"
        )
    return document


def document_of(plan: Plan, composition: NodeComposition, broker: Broker) -> PlanDocument:
    """Returns the document of a node whose parts are made. It may run or not."""
    is_broker = "broker" in plan.manifest.node.roles
    return PlanDocument(
        version=__version__,
        spi=spi.VERSION,
        digest=_digest(CORE),
        build=plan.build,
        manifest=plan.digest,
        roles=plan.manifest.node.roles,
        plugins=tuple(_entry(plugin, plan.registry) for plugin in plan.plugins),
        apis={kind: tuple(_apis(broker, kind)) for kind in sorted({at.kind for at in plan.listeners})},
        acks=_acks(composition) if is_broker else {},
        features=tuple(_features(composition)),
        configuration=dict(_configuration(plan)),
        without_effect=dict(sorted(_without_effect(plan))),
        left_out=plan.left_out,
        absent=dict(sorted(_absent(plan, composition))),
        absent_apis=tuple(_absent_apis(broker)) if is_broker else (),
        defaults=dict(_defaults(plan.config.abilities)),
    )


def _entry(plugin: PlannedPlugin, registry: Registry) -> PluginEntry:
    (origin,) = registry.origins(plugin.name)
    shown = dict(sorted(_options(plugin.options)))
    return PluginEntry(
        role=plugin.role,
        name=plugin.name,
        distribution=origin.distribution,
        version=origin.version,
        digest=_digest(origin.distribution),
        options={path: value for path, (value, is_default) in shown.items() if not is_default},
        option_defaults={path: value for path, (value, is_default) in shown.items() if is_default},
    )


def _digest(name: str) -> str | None:
    try:
        return code_digest(distribution(name))
    except PackageNotFoundError:
        return None


def _options(options: msgspec.Struct, prefix: str = "") -> Iterator[tuple[str, tuple[Any, bool]]]:
    """Yields path → (the value as it is shown, whether it is the default)."""
    for field in msgspec.structs.fields(options):
        value = getattr(options, field.name)
        if isinstance(value, msgspec.Struct):
            yield from _options(value, f"{prefix}{field.name}.")
            continue
        default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        may_show = value is None or isinstance(value, bool | int | float) or get_origin(field.type) is Literal
        if value == default and not may_show:
            continue
        yield prefix + field.name, (value if may_show else HIDDEN, value == default)


def _apis(broker: Broker, kind: str) -> Iterator[ApiEntry]:
    for key, (low, high) in sorted(broker.advertised(kind).items()):
        yield ApiEntry(key=key, name=API_BY_KEY[key].name, min_version=low, max_version=high)


def _acks(composition: NodeComposition) -> dict[str, str]:
    return {
        "0": "nothing",
        "1": f"written: {composition.storage.promise()}",
        "all": composition.replication.promise(),
    }


def _features(composition: NodeComposition) -> Iterator[FeatureEntry]:
    for _, feature in sorted(supported_features(composition.features).items()):
        yield FeatureEntry(
            name=feature.name,
            min_level=feature.min_level,
            max_level=feature.max_level,
            default_level=feature.default_level,
        )


def _configuration(plan: Plan) -> Iterator[tuple[str, str]]:
    config = plan.config
    for name in sorted(plan.manifest.config):
        synonyms = config.synonyms(name)
        given = next((s.value for s in synonyms if s.source is Source.STATIC_BROKER), None)
        if given is None or given != next((s.value for s in synonyms if s.source is Source.DEFAULT), None):
            yield name, HIDDEN if given is None else given


def _without_effect(plan: Plan) -> Iterator[tuple[str, str]]:
    abilities = plan.config.abilities
    for name in keys_without_effect(plan.manifest, abilities):
        yield name, effect_of(BROKER_CONFIGS.find(name), abilities).where


def _absent(plan: Plan, composition: NodeComposition) -> Iterator[tuple[str, str]]:
    filled = {plugin.role for plugin in plan.plugins}
    is_broker = "broker" in plan.manifest.node.roles
    for role, meaning in ABSENT_ROLES:
        if role not in filled and (is_broker or role == "security"):
            yield role, meaning
    if is_broker and not composition.storage.compacts:
        yield "compaction", COMPACTION_ABSENT
    if is_broker and not hasattr(composition.storage.log_class, "drop_segments"):
        yield "retention", RETENTION_ABSENT


def _absent_apis(broker: Broker) -> Iterable[str]:
    served = broker.advertised("broker")
    return (api.name for key, api in API_BY_KEY.items() if "broker" in api.listeners and key not in served)


_SCOPES: Mapping[str, Definitions] = {"": BROKER_CONFIGS, "topic ": TOPIC_CONFIGS, "group ": GROUP_CONFIGS}


def _defaults(abilities: Set[str]) -> Iterator[tuple[str, str]]:
    for scope, definitions in _SCOPES.items():
        for name, defn in definitions.items():
            if defn.server_default_name is not None or effect_of(defn, abilities).effect != HONOURED:
                continue
            text = render(defn, defn.default)
            if text is not None and not defn.internal:
                yield scope + name, text
