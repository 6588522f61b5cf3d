"""``blumfeld tiered``, on a folder that a cluster has written."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from blumfeld.kernel.runtime.real_files import RealFiles
from blumfeld.testing import EmbeddedBroker
from blumfeld_bench.drivers.wire_client import WireClient
from blumfeld_storage_tiered.commands import app, verify
from tests.plugins.storage_tiered.tiered_cluster import TieredCluster
from tests.secured import MODULE, secured_broker


def called(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), obj=RealFiles())


def manifest_of(folder: Path, store: str, options: str = "") -> str:
    path = folder / "node.toml"
    path.write_text(f'[storage]\nplugin = "storage_tiered"\n[storage.options]\nstore = "{store}"\n{options}')
    return str(path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A store as a folder."""
    cluster = TieredCluster()
    cluster.write(30)
    cluster.rounds()
    for key in cluster.bucket.keys():  # noqa: SIM118 - no dict
        path = tmp_path / "store" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(cluster.bucket.read(key))
    return tmp_path


def test_a_whole_store_passes(folder: Path) -> None:
    result = called("verify", manifest_of(folder, f"file://{folder}/store"))
    assert (result.exit_code, result.stderr) == (0, "")
    assert "cluster cluster\n" in result.stdout
    assert " 0 wrong" in result.stdout


@pytest.mark.parametrize("as_json", [True, False])
def test_damage_is_named_and_ends_with_1(folder: Path, as_json: bool) -> None:
    log = next((folder / "store").rglob("*.log"))
    key = str(log.relative_to(folder / "store"))
    log.write_bytes(log.read_bytes()[:-1])
    result = called("verify", manifest_of(folder, f"file://{folder}/store"), *(["--json"] if as_json else []))
    assert result.exit_code == 1
    first = result.stdout.splitlines()[0]
    if as_json:
        assert json.loads(first)["key"] == key
    else:
        assert first.startswith(f"rotten: {key}: found ")


def test_the_status_has_the_cost(folder: Path) -> None:
    prices = '[storage.options.prices]\ngb_month = 1000000.0\ncurrency = "EUR"\n'
    result = called("status", manifest_of(folder, f"file://{folder}/store", prices))
    assert (result.exit_code, result.stderr) == (0, "")
    assert "ticks " in result.stdout
    assert "\nEUR: " in result.stdout
    assert "0.0000 a month" not in result.stdout


REFUSED = [
    ("file:///no/folder", "", 'storage.options.store: found "file:///no/folder", a folder that isn\'t there'),
    (
        "file:///usr",
        "",
        "without a blumfeld-cluster.json that names a cluster; allowed: the store of a node that",
    ),
    (
        "s4://b",
        "",
        'storage.options.store: found "s4://b"; allowed: one of the schemes az, file, gs, memory, s3',
    ),
    ("s3://k:secret@b", "", 'storage.options.store: found "s3://***@b"'),
    (
        "file:///x",
        "[storage.options.prices]\nput = 1.0\n",
        "storage.options.prices.put: found an unknown key",
    ),
    (
        "file:///x",
        "[storage.options.prices]\ngb_month = -1.0\n",
        "storage.options.prices.gb_month: found -1.0",
    ),
]


@pytest.mark.parametrize("verb", ["verify", "status"])
@pytest.mark.parametrize(("store", "options", "told"), REFUSED)
def test_a_manifest_that_can_t_be_used_ends_with_2(
    tmp_path: Path, verb: str, store: str, options: str, told: str
) -> None:
    result = called(verb, manifest_of(tmp_path, store, options))
    assert result.exit_code == 2
    assert told in result.stderr
    assert "secret" not in result.stderr
    assert not Path("/no").exists()


def test_a_command_ends_its_process_before_the_interpreter_shuts_down(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """obstore's threads aborted every tenth command while it did."""
    ended: list[int] = []
    monkeypatch.setattr("os._exit", ended.append)
    monkeypatch.setattr("sys.__stdout__", sys.stdout)
    context = typer.Context(typer.main.get_command(app), obj=RealFiles())
    with pytest.raises(typer.Exit):
        verify.command(context, manifest_of(folder, f"file://{folder}/store"))
    assert ended == [0]


def test_a_manifest_without_tiered_storage_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text("[node]\nid = 1\n")
    result = called("verify", str(path))
    assert result.exit_code == 2
    assert 'storage.plugin: found "storage_local"; allowed: "storage_tiered"' in result.stderr


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    options = {
        "store": f"file://{tmp_path}/live",
        "metadata_topic": {"num_partitions": 2, "replication_factor": 1, "min_isr": 1},
    }
    with EmbeddedBroker(storage="storage_tiered", storage_options=options) as broker:
        yield broker


def test_a_broker_tells_what_is_not_copied(tmp_path: Path, broker: EmbeddedBroker) -> None:
    with WireClient(broker.host, broker.port) as client:
        client.create_topic("ticks", 1, config={"remote.storage.enable": "true"})
        client.wait_for_leaders("ticks")
    manifest = manifest_of(tmp_path, f"file://{tmp_path}/live")
    result = called("status", manifest, "--json", "--bootstrap", broker.bootstrap_servers)
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["lag_records"] == 0
    result = called("verify", manifest, "--bootstrap", broker.bootstrap_servers)
    assert result.exit_code == 0, result.stderr
    assert "the metadata topic" in result.stdout


@pytest.mark.parametrize("verb", ["status", "verify"])
def test_a_verb_logs_in_at_a_secured_broker(tmp_path: Path, verb: str) -> None:
    options = {
        "store": f"file://{tmp_path}/live",
        "metadata_topic": {"num_partitions": 1, "replication_factor": 1, "min_isr": 1},
    }
    manifest = manifest_of(tmp_path, f"file://{tmp_path}/live")
    with secured_broker(tmp_path, storage="storage_tiered", storage_options=options) as (broker, files):
        asked = (verb, manifest, "--bootstrap", broker.bootstrap_servers)
        result = called(*asked, "--command-config", files.properties())
        assert (result.exit_code, result.stderr) == (0, "")
        result = called(*asked)
        assert result.exit_code == 2
        assert "Its listener may want TLS or a login" in result.stderr
        wrong = files.properties(
            "wrong.properties", sasl_jaas_config=f'{MODULE} required username="a" password="b";'
        )
        result = called(*asked, "--command-config", wrong)
        assert result.exit_code == 2
        assert (
            f"--bootstrap: {broker.bootstrap_servers}: login of 'a' by SCRAM-SHA-256: the server"
            in result.stderr
        )
    result = called(verb, manifest, "--command-config", files.properties())
    assert "--command-config: found it without --bootstrap" in result.stderr


def test_another_cluster_s_broker_is_refused(folder: Path, broker: EmbeddedBroker) -> None:
    manifest = manifest_of(folder, f"file://{folder}/store")
    result = called("verify", manifest, "--bootstrap", broker.bootstrap_servers)
    assert result.exit_code == 2
    assert "to which" in result.stderr
