"""Write docs/apis.md from the API handlers of a composed broker.

    python tools/apis_page.py > docs/apis.md

tests/test_apis_page.py holds the page to what this prints.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any, NamedTuple

from blumfeld.cli.manifest import load_manifest
from blumfeld.kernel.composing.plan import make_plan
from blumfeld.kernel.node import Node
from blumfeld.kernel.runtime.asyncio_runtime import AsyncioRuntime
from blumfeld.kernel.watching.event_log import EventLogs
from blumfeld.spi.context import ApiHandler
from blumfeld.spi.groups import GroupProtocol
from blumfeld.wire.api import API_BY_KEY, ApiInfo

INTRODUCTION = """\
# APIs

Which requests of the Kafka protocol a broker of the default composition serves, and where the code is.
Written by `tools/apis_page.py`; don't edit it by hand. `blumfeld plan MANIFEST` prints the same for your own
composition.

* **versions**: the request versions that are served. A request in another version closes the connection, as
  Kafka does; only ApiVersions is answered. ApiVersions shows the same range, except where **shown** says
  otherwise.
* **Kafka 4.3.1**: its range of stable versions, where it differs from ours.
* **listener**: the kinds of listener that serve the request. A request on another kind closes the connection.
* **module**: the file of the handler below `core/blumfeld/`, or the plug-ins that serve it. An API of several
  plug-ins goes to the one whose type the group has.

[not-implemented.md](not-implemented.md) says what a client sees where an API does less than Kafka's.
"""
ABSENT = """\
## Not served

ApiVersions doesn't list these, so that a client knows before it asks. A request closes the connection. The
last column has the kinds of listener that serve the API in Kafka. Keys 4 to 7 are spoken in a cluster with a
ZooKeeper only.

| key | name | Kafka 4.3.1 | Kafka's listeners |
|--:|---|---|---|"""


class Served(NamedTuple):
    """One API of the broker."""

    handlers: list[ApiHandler]
    listeners: list[str]
    shown: tuple[int, int]
    modules: str


def page() -> list[str]:
    """The page's lines."""
    served = asyncio.run(_of_default_broker())
    return list(_lines(served))


def _lines(served: dict[int, Served]) -> Iterator[str]:
    yield INTRODUCTION
    yield "## Served"
    yield ""
    yield "| key | name | versions | shown | Kafka 4.3.1 | listener | module |"
    yield "|--:|---|---|---|---|---|---|"
    for key, api in sorted(served.items()):
        info = API_BY_KEY[key]
        low = min(handler.min_version for handler in api.handlers)
        high = max(handler.max_version for handler in api.handlers)
        ours, kafkas = _range(low, high), _range(info.min_version, info.max_version)
        shown = _range(*api.shown)
        cells = (
            str(key),
            info.name,
            ours,
            "" if shown == ours else shown,
            "" if kafkas == ours else kafkas,
            ", ".join(api.listeners),
            api.modules,
        )
        yield f"| {' | '.join(cells)} |"
    yield ""
    yield ABSENT
    for key, info in API_BY_KEY.items():
        if key not in served:
            yield f"| {key} | {info.name} | {_kafkas(info)} | {_kinds(info)} |"


def _range(low: int, high: int) -> str:
    return str(low) if low == high else f"{low}–{high}"


def _kafkas(info: ApiInfo) -> str:
    """Kafka's versions, and which Kafka's if the newest has none."""
    versions = _range(info.min_version, info.max_version)
    return f"none (3.9.2: {versions})" if "zkBroker" in info.listeners else versions


def _kinds(info: ApiInfo) -> str:
    return ", ".join(info.listeners)


async def _of_default_broker() -> dict[int, Served]:
    """Each API that the default node serves, by key; the node is composed, and nothing is opened."""

    def defect(where: str, error: BaseException) -> None:
        raise error

    plan = make_plan(load_manifest(None, (), None, None))
    runtime = AsyncioRuntime(defect)
    try:
        node = Node(plan, runtime, EventLogs(lambda: lambda *_: None))
        protocols = node.composition.group_protocols
        served: dict[int, Served] = {}
        for kind in ("broker", "controller"):
            dispatcher: Any = node.broker.connection_handler(kind)
            for key, shown in node.broker.advertised(kind).items():
                handlers: list[ApiHandler] = dispatcher._handlers[key]
                api = served.setdefault(key, Served(handlers, [], shown, _modules(handlers, protocols)))
                api.listeners.append(kind)
        return served
    finally:
        await runtime.close()


def _modules(handlers: list[ApiHandler], protocols: tuple[GroupProtocol, ...]) -> str:
    """The files of the functions that answer, or the plug-ins of the group types that do."""
    key = handlers[0].key
    types = [protocol for protocol in protocols if key in protocol.apis or key in protocol.guest_apis]
    if types:
        return ", ".join(
            f"`{type(protocol).__module__.split('.')[0].removeprefix('blumfeld_')}`" for protocol in types
        )
    return ", ".join(f"`{_file_of(handler)}`" for handler in handlers)


def _file_of(handler: ApiHandler) -> str:
    """The name of the module that answers. Handlers of the broker are loaded with their first request."""
    handle: Any = handler.handle
    load = getattr(getattr(handle, "__self__", None), "_load", None)
    if load is not None:
        handle = load().handle
    module = handle.__module__
    if module.startswith("blumfeld."):
        return PurePath(*module.split(".")).name + ".py"
    return str(module.split(".")[0].removeprefix("blumfeld_"))


if __name__ == "__main__":
    print("\n".join(page()))
