"""The read-only key ``blumfeld.build`` of a broker."""

from __future__ import annotations

import pytest

from blumfeld.config.definitions import BUILD_KEY
from blumfeld.spi.cluster import BROKER_RESOURCE, TOPIC_RESOURCE
from blumfeld.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from tests.broker.harness import NODE, BrokerHarness


def described(
    kind: int, name: str, keys: list[str] | None, **more: bool
) -> list[DescribeConfigsResourceResult]:
    broker = BrokerHarness(partitions=1)
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    answer = broker.ask(DescribeConfigsRequest(resources=[resource], **more), 4)
    assert isinstance(answer, DescribeConfigsResponse)
    [result] = answer.results
    return list(result.configs)


@pytest.mark.parametrize("keys", [None, [BUILD_KEY], ["log.dirs", BUILD_KEY]])
def test_a_broker_says_what_it_is_made_of_as_a_key_that_can_only_be_read(keys: list[str] | None) -> None:
    configs = described(BROKER_RESOURCE, str(NODE), keys, include_documentation=True)
    [build] = [config for config in configs if config.name == BUILD_KEY]
    assert (build.value, build.read_only, build.is_sensitive) == ('{"format":1}', True, False)
    assert build.documentation is not None


@pytest.mark.parametrize(
    ("kind", "name", "keys"),
    [
        (BROKER_RESOURCE, str(NODE), ["log.dirs"]),
        (BROKER_RESOURCE, "", None),
        (TOPIC_RESOURCE, "t", [BUILD_KEY]),
    ],
)
def test_the_key_is_not_among_others(kind: int, name: str, keys: list[str] | None) -> None:
    assert BUILD_KEY not in [config.name for config in described(kind, name, keys)]
