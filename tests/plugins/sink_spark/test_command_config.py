"""``blumfeld archive`` at a broker that speaks SASL_SSL alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from blumfeld_sink_spark.commands import app
from blumfeld_sink_spark.errors import SettingsError
from blumfeld_sink_spark.logins import for_java, for_librdkafka
from blumfeld_sink_spark.reading.producing.topic_writer import Topic
from blumfeld_sink_spark.settings import load
from campaigns.archive.common.process import Command, archive_command
from tests.secured import MODULE, Secured, secured_broker

LINES = 40


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Secured]]:
    with secured_broker(tmp_path_factory.mktemp("secured")) as (broker, files):
        yield broker.bootstrap_servers, files


def called(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def capture(folder: Path) -> str:
    path = folder / "capture"
    path.write_text("".join(f'{1_700_000_000_000_000_000 + n} {{"n": {n}}}\n' for n in range(LINES)))
    return str(path)


def test_messages_are_sent_by_a_login(secured: tuple[str, Secured], tmp_path: Path) -> None:
    bootstrap, files = secured
    arguments = [
        "load",
        capture(tmp_path),
        "--topic",
        "sent",
        "--key",
        "k",
        "--bootstrap",
        bootstrap,
        "--json",
    ]
    result = called(*arguments, "--command-config", files.properties())
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["messages"] == LINES


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(300)
@pytest.mark.parametrize("reader", ["python", "direct"])
def test_an_archive_is_made_and_checked_by_a_login(
    reader: str, secured: tuple[str, Secured], tmp_path: Path
) -> None:
    bootstrap, files = secured
    config, topic, root = files.properties(), f"archived-{reader}", str(tmp_path / "archive")
    at = ["--bootstrap", bootstrap, "--command-config", config]
    assert called("load", capture(tmp_path), "--topic", topic, "--key", "k", *at).exit_code == 0
    command = [*archive_command("once"), "--topics", topic, "--root", root, "--reader", reader, *at]
    Command([*command, "--set", "spark.driver.memory=1g"], tmp_path / "once").wait(240)
    result = called("verify", "--root", root, "--against", bootstrap, "--command-config", config, "--json")
    assert json.loads(result.stdout)["with_rows"] == LINES, result.output
    result = called("verify", "--root", root, *at)
    assert result.exit_code in (0, 3), result.output
    sent = called("replay", "--root", root, "--to-topic", f"{topic}-again", "--speed", "max", "--json", *at)
    assert sent.exit_code == 0, sent.output


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (
            None,
            "Its listener may want TLS or a login; the client's security.protocol is PLAINTEXT (--command-config FILE)",
        ),
        (
            {"sasl_jaas_config": f'{MODULE} required username="admin" password="wrong";'},
            "login of 'admin' by SCRAM-SHA-256: the server refuses: Authentication failed",
        ),
        (
            {"ssl_truststore_location": None, "ssl_truststore_type": None},
            "the server's certificate isn't accepted: no certificate of ssl.truststore.location has signed it",
        ),
    ],
)
def test_an_archive_says_why_it_is_not_let_in(
    changed: dict[str, str | None] | None,
    told: str,
    secured: tuple[str, Secured],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bootstrap, files = secured
    monkeypatch.setattr(Topic.__init__, "__kwdefaults__", {"answer_s": 2.0})
    arguments = ["load", capture(tmp_path), "--topic", "refused", "--bootstrap", bootstrap]
    if changed is not None:
        arguments += ["--command-config", files.properties(f"{tmp_path.name}.properties", **changed)]
    result = called(*arguments)
    assert result.exit_code == 1
    assert f"blumfeld archive: {bootstrap}: " in result.stderr
    assert told in result.stderr


def test_a_wrong_file_is_refused(secured: tuple[str, Secured], tmp_path: Path) -> None:
    bootstrap, files = secured
    config = files.properties("wrong.properties", linger_ms="1")
    for verb in ("once", "run"):
        result = called(verb, "--topics", "t", "--bootstrap", bootstrap, "--command-config", config)
        assert (result.exit_code, "linger.ms: found a key that has no effect" in result.stderr) == (
            2,
            True,
        ), verb


def test_a_key_in_the_section_and_in_the_file_is_refused(secured: tuple[str, Secured]) -> None:
    given = {"topics": ["t"], "command_config": secured[1].properties()}
    with pytest.raises(SettingsError, match=r"sasl\.mechanism: found it, and archive\.kafka has it, too"):
        load(None, {**given, "kafka": {"sasl.mechanisms": "PLAIN"}})


def test_each_client_is_told_in_its_own_words(secured: tuple[str, Secured]) -> None:
    files = secured[1]
    settings = load(
        None, {"topics": ["t"], "command_config": files.properties(), "kafka": {"fetch.min.bytes": "1"}}
    )
    java, librdkafka = for_java(settings.kafka), for_librdkafka(settings.kafka)
    assert java["sasl.jaas.config"].startswith(MODULE)
    assert java["ssl.truststore.location"] == librdkafka["ssl.ca.location"] == str(files.signer)
    assert librdkafka["sasl.username"] == "admin"
    assert java["fetch.min.bytes"] == librdkafka["fetch.min.bytes"] == "1"
