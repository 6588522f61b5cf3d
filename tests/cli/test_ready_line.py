"""What the ready line says of the build."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from blumfeld import __version__
from blumfeld.cli.run import say_ready
from blumfeld.plugging.registry import Origin
from blumfeld.spi.transport import Listener


class Origins:
    """A registry in which one plug-in has a version of its own."""

    def origins(self, name: str) -> list[Origin]:
        return [Origin("d", "2.1" if name == "acme" else __version__)]


def said(capsys: pytest.CaptureFixture[str], **made_from: str) -> str:
    plugins = [
        SimpleNamespace(role=role, name=name) for role, name in (("network", "net"), ("storage", "acme"))
    ]
    plan = SimpleNamespace(
        plugins=plugins, registry=Origins(), **{"build": None, "digest": None, **made_from}
    )
    composition = SimpleNamespace(
        transport=SimpleNamespace(driver=lambda: "epoll"), node_id=3, data_dirs=("/a", "/b")
    )
    listener = Listener(name="PLAINTEXT", kind="broker", host="::1", port=9092)
    say_ready(cast("Any", SimpleNamespace(plan=plan, composition=composition, listeners=[listener])))
    return capsys.readouterr().out.partition(" ms: ")[2]


def test_a_plug_in_has_its_version_where_that_is_not_blumfelds(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys) == "net (epoll) + acme 2.1; node 3, data in /a and /b\n"


def test_a_manifest_or_the_build_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert "acme 2.1; manifest sha256:0123456789ab; node 3" in said(capsys, digest="sha256:0123456789abcdef")
    assert "acme 2.1; build ticks; node 3" in said(capsys, digest="sha256:0123", build="ticks")
