"""``blumfeld bench`` at a broker that speaks SASL_SSL alone, with each driver."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from blumfeld_bench.command import app
from blumfeld_bench.result import load_result
from tests.secured import MODULE, Secured, secured_broker

WORKLOAD = """
name = "secured"
description = "a little of all"
driver = "{driver}"
[topic]
partitions = 3
[[steps]]
name = "closed"
warm_up_s = 0.5
measure_s = 2.0
idle_connections = {idle}
produce = {{ connections = 2, record_bytes_min = {size}, record_bytes_max = {size}, batch_records = {batch}{more} }}
{consume}
"""
READS = "consume = { groups = 1 }"
DRIVERS = {
    "wire": WORKLOAD.format(
        driver="wire", idle=3, size=20_000, batch=20, more=", in_flight = 5", consume=READS
    ),
    "librdkafka": WORKLOAD.format(
        driver="librdkafka", idle=3, size=100, batch=1, more=", in_flight = 5", consume=READS
    ),
    "transactions": WORKLOAD.format(
        driver="transactions",
        idle=0,
        size=100,
        batch=10,
        more=", acks = -1, transaction = { partitions = 3, version = 2 }",
        consume="",
    ),
}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Secured]]:
    with secured_broker(tmp_path_factory.mktemp("secured")) as (broker, files):
        yield f"kafka://127.0.0.1:{broker.port} --running", files


def bench(folder: Path, driver: str, variant: str) -> Result:
    (folder / "workload.toml").write_text(DRIVERS[driver])
    arguments = ["run", variant, "--workload", str(folder / "workload.toml"), "--rounds", "1"]
    return CliRunner().invoke(app, [*arguments, "--out", str(folder / "result.json"), "--no-system-calls"])


@pytest.mark.parametrize("driver", DRIVERS)
def test_each_driver_logs_in(driver: str, secured: tuple[str, Secured], tmp_path: Path) -> None:
    variant, files = secured
    result = bench(tmp_path, driver, f"{variant} --command-config {files.properties()}")
    assert result.exit_code == 0, result.output
    measured = load_result(tmp_path / "result.json").measured
    assert [(each.errors, each.error) for each in measured] == [(0, None)]
    assert measured[0].requests > 0
    if driver != "transactions":
        assert measured[0].received_bytes_per_s > 0


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (None, "Its listener may want TLS or a login"),
        (
            {"sasl_jaas_config": f'{MODULE} required username="admin" password="wrong";'},
            "login of 'admin' by SCRAM-SHA-256: the server refuses",
        ),
        (
            {"ssl_truststore_location": None, "ssl_truststore_type": None},
            "the server's certificate isn't accepted",
        ),
    ],
)
def test_the_bench_says_why_it_is_not_let_in(
    changed: dict[str, str | None] | None, told: str, secured: tuple[str, Secured], tmp_path: Path
) -> None:
    variant, files = secured
    if changed is not None:
        variant += f" --command-config {files.properties(f'{tmp_path.name}.properties', **changed)}"
    result = bench(tmp_path, "wire", variant)
    assert result.exit_code == 1
    assert told in result.output


def test_a_wrong_file_is_refused_before_anything_is_dialled(
    secured: tuple[str, Secured], tmp_path: Path
) -> None:
    variant, files = secured
    config = files.properties("wrong.properties", linger_ms="1")
    result = bench(tmp_path, "wire", f"{variant} --command-config {config}")
    assert result.exit_code == 2
    assert "linger.ms: found a key that has no effect here" in result.output.replace("\n", "")
    result = bench(tmp_path, "wire", f"default --nodes 3 --command-config {files.properties()}")
    assert result.exit_code == 2
    assert "plain listeners" in result.output
