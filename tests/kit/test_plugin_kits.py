"""A kit for any plug-in: its parts are made by its own hooks, and a role without a kit says why."""

from __future__ import annotations

import pytest

import blumfeld_kit
from blumfeld.plugging.errors import ManifestError
from blumfeld.plugging.registry import ROLES, Registry
from blumfeld.spi.hooks import Composition, NoOptions
from blumfeld_kit import AssignorContract, StorageContract, TransportContract
from blumfeld_kit.fakes import FakeRuntime
from blumfeld_kit.plugin_kits import NoKit, kits_of
from blumfeld_kit.plugin_kits.kits import NO_KIT


@pytest.mark.parametrize("name", ["storage_memory", "storage_local"])
def test_a_storage_is_made_by_its_hook(name: str) -> None:
    kits = kits_of(name, "storage", {})
    assert issubclass(kits["TestStorage"], StorageContract)
    first, second = (kits["TestStorage"]().make_storage(FakeRuntime(1)) for _ in range(2))
    assert first is not second
    assert first.log_class


@pytest.mark.parametrize("name", ["net_asyncio", "net_uring"])
def test_a_transport_is_made_by_its_hook(name: str) -> None:
    assert issubclass(kits_of(name, "network", {})["TestTransport"], TransportContract)


def test_a_storage_that_wraps_another_has_no_kit() -> None:
    with pytest.raises(NoKit, match="needs more of a node than a kit has"):
        kits_of("storage_tiered", "storage", {"store": "s3://bucket/prefix"})


def test_a_storage_that_fails_when_it_is_made_is_not_said_to_be_untried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Broken:
        options_class = NoOptions

        def blumfeld_make_storage(self, composition: Composition) -> object:
            return composition.runtime.files.no_such_method()  # type: ignore[attr-defined]

    monkeypatch.setattr(Registry, "load", lambda *_: Broken)
    with pytest.raises(AttributeError, match="no_such_method"):
        kits_of("acme", "storage", {})


def test_a_role_without_a_kit_says_why() -> None:
    with pytest.raises(NoKit, match="cluster"):
        kits_of("consensus_kraft", "consensus", {})
    told = {"storage", "observers", "network", "assignors"}
    assert {role for role in ROLES if role not in told} - NO_KIT.keys() <= {"decoders"}


def test_no_role_with_a_contract_is_said_to_have_none() -> None:
    contracts = [name.lower() for name in blumfeld_kit.__all__]
    without = [role for role, why in NO_KIT.items() if why.startswith("no contract kit")]
    assert without
    assert [role for role in without if any(name.startswith(role.rstrip("s")) for name in contracts)] == []


def test_a_plugin_of_another_role_is_refused() -> None:
    with pytest.raises(ManifestError):
        kits_of("storage_memory", "network", {})


def test_each_assignor_of_a_plugin_has_a_kit(monkeypatch: pytest.MonkeyPatch) -> None:
    class Brings:
        options_class = NoOptions

        def blumfeld_assignors(self) -> list[str]:
            return ["first", "second"]

    monkeypatch.setattr(Registry, "load", lambda *_: Brings)
    kits = kits_of("acme", "assignors", {})
    assert all(issubclass(kit, AssignorContract) for kit in kits.values())
    assert [kit().make_assignor() for kit in kits.values()] == ["first", "second"]
