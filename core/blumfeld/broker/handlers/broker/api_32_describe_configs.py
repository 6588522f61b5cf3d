"""DescribeConfigs (key 32), v1-4: topics, this broker, the cluster's default, groups.

v1  synonyms. v3  types and documentation. v4  flexible. Left out: broker loggers and client metrics
(INVALID_REQUEST). The documentation of a key ends with its effect in this build. Beside Kafka's keys a broker has
``blumfeld.build``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Set

from blumfeld.broker.ports import Ports
from blumfeld.config.definitions import (
    BROKER_CONFIGS,
    BUILD_KEY,
    GROUP_CONFIGS,
    TOPIC_CONFIGS,
    ConfigDef,
    render,
    usable,
)
from blumfeld.config.values import Source, Synonym
from blumfeld.spi.cluster import BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE
from blumfeld.spi.completion import Steps
from blumfeld.spi.context import ApiHandler, RequestContext
from blumfeld.spi.steps import in_parts
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from blumfeld.wire.schema import Message

RESOURCES_AT_ONCE = 2
"""Resources described before other requests get their turn: a broker's 360 keys, with documentation, take 2 ms."""
KEYS_MAX = 500_000
"""Keys of one answer. Each takes 600 bytes until the answer is sent. Without a bound a request of 250 kB could ask for
11 GB."""
TOO_MANY = f"one answer describes some {KEYS_MAX} keys at most: ask for this resource in another request"
MANY_KEYS = 64
"""Number of requested keys from which on they are looked up in a set."""
BUILD_DOCUMENTATION = "What this broker is made of and promises, as JSON: the document of blumfeld plan."
STRING_TYPE = 2
Described = tuple[ConfigDef, tuple[Synonym, ...]]
"""A key, and the values set for it at each level. The first one is in effect."""


def handlers(ports: Ports) -> list[ApiHandler]:
    """Returns the handler of DescribeConfigs."""
    describing = DescribeConfigs(ports)
    return [
        ApiHandler(
            key=32,
            min_version=1,
            max_version=4,
            handle=describing.handle,
            error_response=failed,
        )
    ]


def failed(request: DescribeConfigsRequest, code: int, message: str | None) -> Message:
    """Returns an answer with this error for every resource."""
    return DescribeConfigsResponse(results=[_refused(r, code, message) for r in request.resources])


def _refused(resource: DescribeConfigsResource, code: int, message: str | None) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


class DescribeConfigs:
    """Answers from the image and the manifest."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    def handle(
        self, request: DescribeConfigsRequest, context: RequestContext
    ) -> DescribeConfigsResponse | Steps[Message]:
        """Describe each resource with the requested keys; null requests all keys. Several resources take steps: one
        takes 8 bytes of a request, and 70 kB of its answer.
        """
        several = len(request.resources) > RESOURCES_AT_ONCE
        return self._many(request, context) if several else self._some(request, context)

    def _some(self, request: DescribeConfigsRequest, context: RequestContext) -> DescribeConfigsResponse:
        results = []
        for resource in request.resources:
            try:
                described = list(self._describe(resource, context))
            except BrokerError as error:
                results.append(_refused(resource, error.code, error.message))
                continue
            keys: Collection[str] | None = resource.configuration_keys
            if keys is not None and len(keys) > MANY_KEYS:
                keys = frozenset(keys)
            wanted = described if keys is None else [item for item in described if item[0].name in keys]
            configs = [_shown(item, request, self._ports.cluster.config.abilities) for item in wanted]
            is_broker = resource.resource_type == BROKER_RESOURCE and resource.resource_name
            if is_broker and (keys is None or BUILD_KEY in keys):
                configs.append(self._build(request))
            results.append(
                DescribeConfigsResult(
                    error_message=None,
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                    configs=configs,
                )
            )
        return DescribeConfigsResponse(results=results)

    def _build(self, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
        return DescribeConfigsResourceResult(
            name=BUILD_KEY,
            value=self._ports.plan_json(),
            read_only=True,
            config_source=Source.STATIC_BROKER,
            config_type=STRING_TYPE,
            documentation=BUILD_DOCUMENTATION if request.include_documentation else None,
        )

    def _many(self, request: DescribeConfigsRequest, context: RequestContext) -> Steps[Message]:
        """Describe many resources in steps. Those beyond :data:`KEYS_MAX` get INVALID_REQUEST."""
        left = KEYS_MAX

        def handle(part: DescribeConfigsRequest, context: RequestContext) -> Message:
            nonlocal left
            if left <= 0:
                return failed(part, ErrorCode.INVALID_REQUEST, TOO_MANY)
            answer = self._some(part, context)
            left -= sum(len(result.configs) for result in answer.results)
            return answer

        serve = in_parts(handle, failed, ("resources",), ("results",), chunk=RESOURCES_AT_ONCE)
        answer: Message = yield from serve(request, context)
        return answer

    def _describe(self, resource: DescribeConfigsResource, context: RequestContext) -> Iterator[Described]:
        name = resource.resource_name
        match resource.resource_type:
            case _ if resource.resource_type == TOPIC_RESOURCE:
                _allow(context, "Topic", name, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                if name not in self._ports.cluster.image.topics:
                    raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                config = self._ports.cluster.topic_config(name)
                return ((TOPIC_CONFIGS[key], config.synonyms(key)) for key in TOPIC_CONFIGS)
            case _ if resource.resource_type == BROKER_RESOURCE:
                _allow(context, "Cluster", "kafka-cluster", ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
                return self._broker_configs(name)
            case _ if resource.resource_type == GROUP_RESOURCE:
                _allow(context, "Group", name, ErrorCode.GROUP_AUTHORIZATION_FAILED)
                return self._group_configs(name)
        _allow(context, "Cluster", "kafka-cluster", ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        raise BrokerError(
            ErrorCode.INVALID_REQUEST, f"no configuration of type {resource.resource_type} here"
        )

    def _broker_configs(self, name: str) -> Iterator[Described]:
        """Returns all keys of this broker; for the cluster's default only those that were set."""
        if name == "":
            given = self._ports.cluster.image.config(BROKER_RESOURCE, "")
            return (
                (BROKER_CONFIGS.find(key), (Synonym(key, given[key], Source.DYNAMIC_DEFAULT_BROKER),))
                for key in usable(BROKER_CONFIGS, given)
            )
        if name != str(self._ports.cluster.node_id):
            raise BrokerError(
                ErrorCode.INVALID_REQUEST,
                f"this is broker {self._ports.cluster.node_id}; ask broker {name} for its own configuration",
            )
        config = self._ports.cluster.config
        return ((BROKER_CONFIGS[key], config.synonyms(key)) for key in BROKER_CONFIGS)

    def _group_configs(self, name: str) -> Iterator[Described]:
        given = self._ports.cluster.image.config(GROUP_RESOURCE, name)
        config = self._ports.cluster.config
        for key in GROUP_CONFIGS:
            defn = GROUP_CONFIGS[key]
            own = (Synonym(key, given[key], Source.DYNAMIC_GROUP),) if key in given else ()
            if defn.server_default_name is not None:
                yield defn, (*own, *config.synonyms(defn.server_default_name))
            else:
                yield defn, (*own, Synonym(key, render(defn, defn.default), Source.DEFAULT))


def _allow(context: RequestContext, kind: str, name: str, otherwise: ErrorCode) -> None:
    if not context.authorize("DescribeConfigs", kind, name):
        raise BrokerError(otherwise)


def _shown(
    item: Described, request: DescribeConfigsRequest, abilities: Set[str]
) -> DescribeConfigsResourceResult:
    defn, synonyms = item
    holds = synonyms[0] if synonyms else Synonym(defn.name, None, Source.DEFAULT)
    return DescribeConfigsResourceResult(
        name=defn.name,
        value=None if defn.sensitive else holds.value,
        read_only=_read_only(defn),
        config_source=holds.source,
        is_sensitive=defn.sensitive,
        synonyms=_synonyms(defn, synonyms) if request.include_synonyms else [],
        config_type=defn.wire_type,
        documentation=_documentation(defn, abilities) if request.include_documentation else None,
    )


def _read_only(defn: ConfigDef) -> bool:
    from blumfeld.config.effects import effect_of

    return defn.scope == "broker" and (defn.read_only or effect_of(defn).manifest_only)


def _documentation(defn: ConfigDef, abilities: Set[str]) -> str:
    from blumfeld.config.effects import effect_of

    effect = effect_of(defn, abilities)
    return f"{effect.documentation} {effect.in_words}"


def _synonyms(defn: ConfigDef, synonyms: Iterable[Synonym]) -> list[DescribeConfigsSynonym]:
    return [
        DescribeConfigsSynonym(name=s.name, value=None if defn.sensitive else s.value, source=s.source)
        for s in synonyms
    ]
