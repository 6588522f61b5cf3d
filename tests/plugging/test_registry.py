"""Plug-ins are found by their entry points, and only those that are named are imported."""

from __future__ import annotations

import re
import sys
from importlib.metadata import EntryPoint

import pytest

from blumfeld import spi
from blumfeld.kernel.composing.plan import make_plan
from blumfeld.kernel.manifest.sections import Manifest
from blumfeld.plugging.errors import ManifestError
from blumfeld.plugging.published import IN_DEFAULT_BUILD
from blumfeld.plugging.registry import GROUP, Registry
from blumfeld.spi.hooks import NoOptions
from blumfeld.wire.errors import PluginContractError
from tests.kernel import fakes


class WithoutOptions:
    """Says nothing of its options."""

    roles = ("storage",)


class WithoutRoles:
    """Says nothing of its roles."""

    options_class = NoOptions


class WithUnknownRole:
    """Fills what isn't there."""

    options_class = NoOptions
    roles = ("coffee",)


class WithAVersion:
    """Says which spi it was written for."""

    options_class = NoOptions
    roles = ("storage",)
    requires_spi: object = spi.VERSION


NO_CLASS = "a string"


def test_the_bundled_plugins_are_found_with_their_distribution() -> None:
    registry = Registry()
    assert "net_asyncio" in registry.names()
    (origin,) = registry.origins("net_asyncio")
    assert str(origin).startswith("blumfeld-net-asyncio ")


def test_only_what_is_named_is_imported() -> None:
    name = "tests.kernel.never_there"
    registry = fakes.registry(other=f"{name}:Plugin")
    assert registry.load("net_fake", "network", "m.toml", "network.plugin") is fakes.NetFake
    assert name not in sys.modules


def test_two_distributions_may_not_bring_the_same_name() -> None:
    points = [EntryPoint("x", "tests.kernel.fakes:NetFake", GROUP), EntryPoint("x", "other:Plugin", GROUP)]
    with pytest.raises(ManifestError, match="one distribution for each plug-in name"):
        Registry(points).load("x", "network", "m.toml", "network.plugin")


def test_with_no_plugin_installed_the_error_says_so() -> None:
    with pytest.raises(ManifestError, match="no plug-in is installed"):
        Registry([]).load("x", "network", "m.toml", "network.plugin")


@pytest.mark.parametrize(
    ("attribute", "complaint"),
    [
        ("NO_CLASS", "names 'a string', not a class"),
        ("WithoutOptions", "options_class is None"),
        ("WithoutRoles", "roles is None"),
        ("WithUnknownRole", r"roles is \('coffee',\)"),
    ],
)
def test_what_is_no_plugin_breaks_the_contract(attribute: str, complaint: str) -> None:
    registry = Registry([EntryPoint("bad", f"{__name__}:{attribute}", GROUP)])
    with pytest.raises(PluginContractError, match=f"plug-in bad .*{complaint}"):
        registry.load("bad", "storage", "m.toml", "storage.plugin")


def test_where_no_installed_plug_in_fills_the_role_that_is_said() -> None:
    points = [EntryPoint("net_fake", "tests.kernel.fakes:NetFake", GROUP)]
    said = r'at: found "x", which isn\'t installed; allowed: no installed plug-in fills decoders$'
    with pytest.raises(ManifestError, match=said):
        Registry(points).load("x", "decoders", "m.toml", "at")


@pytest.mark.parametrize(
    ("name", "role", "allowed"),
    [
        ("net_uring", "network", "net_fake; or pip install blumfeld-net-uring"),
        ("sink_spark", "sink", "pip install blumfeld-archive"),
        (
            "storage_local",
            "storage",
            "pip install blumfeld-storage-local, or blumfeld-default with all of the default build",
        ),
        ("net_urign", "network", "net_fake (did you mean net_uring?)"),
    ],
)
def test_a_plugin_of_this_project_that_is_not_installed_is_named_with_its_distribution(
    name: str, role: str, allowed: str
) -> None:
    points = [EntryPoint("net_fake", "tests.kernel.fakes:NetFake", GROUP)]
    with pytest.raises(ManifestError) as refused:
        Registry(points).load(name, role, "m.toml", "at")
    assert str(refused.value) == f'm.toml: at: found "{name}", which isn\'t installed; allowed: {allowed}'


def test_each_plugin_of_a_manifest_that_is_not_installed_is_named() -> None:
    """A missing one of a list hides none of its neighbours."""
    with pytest.raises(ManifestError) as refused:
        make_plan(Manifest(), registry=Registry([]))
    named = re.findall(r'found "(\w+)", which isn\'t installed', str(refused.value))
    assert set(named) == IN_DEFAULT_BUILD - {"storage_memory"}


MAJOR, MINOR = map(int, spi.VERSION.split("."))


@pytest.mark.parametrize(
    ("required", "complaint"),
    [
        (None, None),
        (spi.VERSION, None),
        (f"{MAJOR}.0", None),
        (f"{MAJOR}.{MINOR + 1}", "install a newer Blumfeld"),
        (f"{MAJOR + 1}.0", "install a newer Blumfeld"),
        (f"{MAJOR - 1}.7", "install a newer one of it"),
        ("1", 'requires_spi = "MAJOR.MINOR"'),
        (1.0, 'requires_spi = "MAJOR.MINOR"'),
    ],
)
def test_a_plug_in_for_another_spi_is_refused_with_both_versions(
    monkeypatch: pytest.MonkeyPatch, required: object, complaint: str | None
) -> None:
    monkeypatch.setattr(WithAVersion, "requires_spi", required)
    registry = Registry([EntryPoint("acme", f"{__name__}:WithAVersion", GROUP)])
    if complaint is None:
        loaded: object = registry.load("acme", "storage", "m.toml", "storage.plugin")
        assert loaded is WithAVersion
        return
    with pytest.raises(ManifestError) as refused:
        registry.load("acme", "storage", "m.toml", "storage.plugin")
    said = str(refused.value)
    assert f'storage.plugin: found "acme" of unknown, which was written for spi {required}; allowed: ' in said
    assert complaint in said


@pytest.mark.parametrize(
    "place", ["blumfeld.spi.never_there:X", "tests.plugging.imports_what_is_gone:Plugin"]
)
def test_a_plug_in_that_imports_what_blumfeld_has_no_more_is_told_of_the_version(place: str) -> None:
    registry = Registry([EntryPoint("acme", place, GROUP)])
    said = (
        r"can't be imported \(.*never_there.*\); allowed: a plug-in that was written for spi \d+\.\d+, which"
    )
    with pytest.raises(ManifestError, match=said):
        registry.load("acme", "storage", "m.toml", "storage.plugin")
