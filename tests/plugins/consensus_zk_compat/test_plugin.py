"""The manifest of a node with a ZooKeeper."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import cast

import pytest

from blumfeld.cli.app import app
from blumfeld.kernel.composing.plan import Plan, make_plan
from blumfeld.kernel.manifest.sections import read_manifest
from blumfeld.plugging.errors import ManifestError
from blumfeld_consensus_zk_compat.options import Options

TWO_LINES = """
[consensus]
plugin = "consensus_zk_compat"
options.connect = "127.0.0.1:2181/blumfeld"
"""

MIGRATION = """
[node]
roles = ["controller"]
[migration]
plugin = "consensus_zk_compat"
options.connect = "127.0.0.1:2181"
"""


def plan_of(text: str, tmp_path: Path, *overrides: str) -> Plan:
    return make_plan(read_manifest(text, "m.toml", overrides=overrides, data_dir=str(tmp_path)), "m.toml")


def test_two_lines_of_a_manifest_choose_it(tmp_path: Path) -> None:
    plan = plan_of(TWO_LINES, tmp_path)
    (consensus,) = plan.of_role("consensus")
    options = cast("Options", consensus.options)
    assert (options.connect, options.session_timeout_ms) == ("127.0.0.1:2181/blumfeld", 18_000)
    assert (plan.quorum, plan.left_out) == (False, ())


@pytest.mark.parametrize("connect", ["", "/blumfeld", "zk1:port", "zk1:2181,/x", "zk1:2181/a//b"])
def test_a_connect_string_that_names_no_servers_or_no_path_is_refused(tmp_path: Path, connect: str) -> None:
    with pytest.raises(ManifestError, match=r"consensus\.options"):
        plan_of(TWO_LINES, tmp_path, f'consensus.options.connect="{connect}"')


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("session_timeout_ms=0", "session_timeout_ms"),
        ("connection_timeout_ms=-5", "connection_timeout_ms"),
        ("request_bytes_max=-1", "request_bytes_max"),
        ('digest="secret"', "USER:PASSWORD"),
        ('digest="kafka:"', "USER:PASSWORD"),
        ("set_acl=true", "give digest or tls.certificate_file"),
    ],
)
def test_an_option_that_could_only_fail_at_the_start_is_refused(
    tmp_path: Path, option: str, said: str
) -> None:
    with pytest.raises(ManifestError, match=said) as caught:
        plan_of(TWO_LINES, tmp_path, f"consensus.options.{option}")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("identity", ['digest="kafka:secret"', 'tls={certificate_file="node.pem"}'])
def test_set_acl_goes_with_an_identity(tmp_path: Path, identity: str) -> None:
    plan_of(TWO_LINES, tmp_path, "consensus.options.set_acl=true", f"consensus.options.{identity}")


@pytest.mark.parametrize(
    "manifest",
    [TWO_LINES, MIGRATION],
    ids=["consensus", "migration"],
)
def test_plan_and_run_say_what_to_install_when_the_client_library_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], manifest: str
) -> None:
    monkeypatch.setitem(sys.modules, "kazoo", None)
    file = tmp_path / "m.toml"
    file.write_text(manifest, encoding="utf-8")
    for command in ("plan", "run"):
        with pytest.raises(SystemExit) as ended:
            app([command, str(file), "--data-dir", str(tmp_path / "data")])
        said = capfd.readouterr().err
        assert ended.value.code == 2, said
        assert "pip install blumfeld-consensus-zk-compat" in said
        assert "ImportError" not in said


def test_a_manifest_without_a_connect_string_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match="connect"):
        plan_of('[consensus]\nplugin = "consensus_zk_compat"\n', tmp_path)
