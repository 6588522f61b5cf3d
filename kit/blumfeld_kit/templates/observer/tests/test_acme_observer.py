"""The contract of every observer, and what makes this one yours."""

from __future__ import annotations

from blumfeld.spi.observer import Observer
from blumfeld_kit import ObserverContract
from blumfeld_kit.fakes import FakeRuntime
from blumfeld_kit.observer_contract import seen

from acme_observer import AcmeObserver


class TestAcmeObserver(ObserverContract):
    """All that every observer must hold."""

    def make_observer(self, runtime: FakeRuntime) -> Observer:
        """Return a new one."""
        return AcmeObserver()


def test_it_tells_what_you_want_to_know() -> None:
    """RED UNTIL YOU WRITE IT. Say here what you want to know; this asks whose requests were refused."""
    observer = AcmeObserver()
    observer.requests([seen(1), seen(2, error_code=3), seen(2, closed="too long")])
    assert observer.requests_seen == 3
    assert observer.refused_by_client == {"client-2": 2}
