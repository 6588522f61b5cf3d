"""The pytest plug-in: fixtures with a broker.

Every pytest run of every project in the environment loads this module, so it imports nothing of the broker.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from blumfeld.testing.embedded import EmbeddedBroker


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line(
        "markers",
        "blumfeld(config=…, storage=…): how the fixtures `blumfeld` and `blumfeld_module` compose their EmbeddedBroker",
    )


@pytest.fixture
def blumfeld(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    """A real Kafka-compatible broker for this test; clients connect to ``blumfeld.bootstrap_servers``.

    ``@pytest.mark.blumfeld(config={"num.partitions": 3}, storage="storage_local")`` says what it is made of; the
    arguments are those of ``blumfeld.testing.EmbeddedBroker``.
    """
    yield from _broker(**_marked(request))


@pytest.fixture(scope="module")
def blumfeld_module(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    """As ``blumfeld``, one broker for all tests of a module. Tests see each other's topics and groups.

    ``pytestmark = pytest.mark.blumfeld(…)`` in the module says what it is made of.
    """
    yield from _broker(**_marked(request))


@pytest.fixture(scope="session")
def blumfeld_session(blumfeld_options: Mapping[str, Any]) -> Iterator[EmbeddedBroker]:
    """As ``blumfeld``, one broker for the whole run; with pytest-xdist one for each worker. Tests see each other's
    topics and groups.

    Override the fixture ``blumfeld_options`` in your conftest.py to say what it is made of.
    """
    yield from _broker(**blumfeld_options)


@pytest.fixture(scope="session")
def blumfeld_options() -> Mapping[str, Any]:
    """The arguments of ``blumfeld_session``'s ``EmbeddedBroker``: none, unless you override this fixture."""
    return {}


def _marked(request: pytest.FixtureRequest) -> Mapping[str, Any]:
    marker = request.node.get_closest_marker("blumfeld")
    return {} if marker is None else marker.kwargs


def _broker(**arguments: Any) -> Iterator[EmbeddedBroker]:
    from blumfeld.testing.embedded import EmbeddedBroker

    with EmbeddedBroker(**arguments) as broker:
        yield broker
