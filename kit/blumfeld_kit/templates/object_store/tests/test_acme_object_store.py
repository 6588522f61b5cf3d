"""The contract of every object store."""

from __future__ import annotations

from blumfeld.spi.object_store import ObjectStore
from blumfeld_kit import ObjectStoreContract
from blumfeld_kit.fakes import FakeRuntime, RealTimeRuntime

from acme_object_store import AcmeObjectStore


class TestAcmeObjectStore(ObjectStoreContract):
    """All that every store must hold. ``virtual_time`` is for a store that waits for nothing but the runtime."""

    lasts = virtual_time = True

    def make_store(self, runtime: FakeRuntime | RealTimeRuntime, name: str) -> ObjectStore:
        """Return a client of the bucket of this name, which is empty at first."""
        return AcmeObjectStore(runtime, name)
