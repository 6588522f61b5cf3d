"""The manifests of the page on security are ones that a node takes as they stand there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from blumfeld.kernel.composing.plan import make_plan
from blumfeld.kernel.manifest.sections import read_manifest

PAGE = Path(__file__).parents[3] / "docs" / "security.md"
MANIFESTS = [
    block
    for block in re.findall(r"^```toml\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    if "[network]" in block
]


@pytest.mark.parametrize("manifest", MANIFESTS, ids=["TLS", "SASL"])
def test_a_manifest_of_the_page_is_a_plan(manifest: str, tmp_path: Path) -> None:
    plan = make_plan(read_manifest(manifest, "broker.toml", data_dir=str(tmp_path)), "broker.toml")
    assert plan.listeners[0].security_protocol in ("SSL", "SASL_PLAINTEXT")
