"""The bucket of a run as a plug-in of each of its nodes."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint
from typing import Any

from blumfeld.plugging.registry import GROUP
from blumfeld.spi.hooks import Composition, NoOptions, hookimpl
from blumfeld.spi.object_store import ObjectStore, StoreFactory
from blumfeld.spi.runtime import Runtime
from blumfeld_kit.fakes.object_store import SimulatedBucket, SimulatedStore

NAME = "stores_simulated"
URL = "simulated://bucket"


def stores_of(bucket: SimulatedBucket) -> EntryPoint:
    """Return the plug-in that opens :data:`URL`. Every process has a client of its own."""

    def make(url: str, runtime: Runtime) -> ObjectStore:
        return SimulatedStore(runtime, bucket)

    class Plugin:
        options_class = NoOptions
        roles = ("stores",)

        @hookimpl
        def blumfeld_object_stores(self, composition: Composition) -> Mapping[str, StoreFactory]:
            return {URL.partition(":")[0]: make}

    class Point(EntryPoint):
        def load(self) -> Any:
            return Plugin

    return Point(NAME, "blumfeld_kit.simulation.tiered.stores:Plugin", GROUP)
