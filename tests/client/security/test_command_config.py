"""A client's file of properties: what is read, what is refused, and what other clients are told of it."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blumfeld.client.security.command_config import (
    BEARER_HANDLER,
    KEYS,
    CommandConfigError,
    client_security,
    command_config,
    read_command_config,
)
from blumfeld.client.security.properties import JaasError, read_jaas, read_properties
from blumfeld.client.security.sasl import Credentials
from blumfeld.kernel.runtime.real_files import RealFiles
from campaigns.certificates import Authority, private

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
BEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
FILES = RealFiles()


def test_a_file_is_read_as_java_reads_it() -> None:
    text = (
        "# a comment\n! another\n\n  security.protocol = SASL_SSL\nsasl.mechanism:PLAIN\nsasl.username alice\n"
        'sasl.jaas.config=Module \\\n    required \\\n  user="a\\\\\\\\b";\n'
        "with\\=sign\\ and\\ space=v\\u0041\\t\nempty=\n"
    )
    assert [tuple(entry) for entry in read_properties(text)] == [
        (4, "security.protocol", "SASL_SSL"),
        (5, "sasl.mechanism", "PLAIN"),
        (6, "sasl.username", "alice"),
        (7, "sasl.jaas.config", 'Module required user="a\\\\b";'),
        (10, "with=sign and space", "vA\t"),
        (11, "empty", ""),
    ]


@pytest.mark.parametrize("char", ["\x0b", "\x1c", "\x85", "\u2028", "\u00a0"])
def test_unicodes_blanks_and_ends_of_lines_are_no_javas(char: str) -> None:
    """What stood behind one in a password was told as an unknown key, and one at its begin was lost."""
    text = f"sasl.password={char}hunter2{char}hunter3\nsasl.username=\\\n{char}u\n"
    assert [entry[1:] for entry in read_properties(text)] == [
        ("sasl.password", f"{char}hunter2{char}hunter3"),
        ("sasl.username", f"{char}u"),
    ]


def test_a_character_of_two_escapes_is_one() -> None:
    [entry] = read_properties("sasl.password=\\ud83d\\ude00")
    assert entry.value == "\U0001f600"
    [half] = read_properties("sasl.password=\\ud83d")
    half.value.encode()  # it was the end of the tool, with the password in a traceback


def test_a_login_of_jaas_is_read_as_kafka_reads_it() -> None:
    """Kafka 4.3.1's own JaasContext reads these texts so."""
    login = read_jaas(r"""a.B REQUIRED username='x' password="p\u00df\1\12\123\777\a\b\v\f\q\8\n\r;y\"z";""")
    assert login.options == {"username": "x", "password": 'pu00df\1\nS?7\a\b\v\fq8\n\r;y"z'}


@given(st.text(), st.text())
def test_a_login_of_jaas_comes_back_whatever_it_holds(user: str, password: str) -> None:
    config = command_config(
        "f",
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": f"u{user}".replace("\0", ""),
            "sasl.password": f"p{password}".replace("\0", ""),
        },
    )
    kept = config.kafka(FILES)
    assert command_config("f", kept).credentials() == config.credentials()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        'Module username="a"',
        'Module required username="a',
        "Module required a;b=c;",
        "M required = 1",
    ],
)
def test_another_text_is_no_login(text: str) -> None:
    with pytest.raises(JaasError):
        read_jaas(text)


def config_of(**values: str) -> dict[str, str]:
    return {key.replace("_", "."): value for key, value in values.items()}


SASL = config_of(security_protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN")
LOGIN = config_of(sasl_username="u", sasl_password="hunter2")
OAUTH = config_of(security_protocol="SASL_SSL", sasl_mechanism="OAUTHBEARER")
TLS = config_of(security_protocol="SSL")


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (
            config_of(client_id="x"),
            r"f: client\.id: found a key that has no effect here; allowed: security\.p",
        ),
        (config_of(security_protocol="TLS"), "found TLS; allowed: PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        (
            config_of(sasl_mechanism="PLAIN"),
            "found it with security.protocol=PLAINTEXT, which has no SASL",
        ),
        ({**SASL, **LOGIN, "ssl.ca.location": "x"}, "ssl.ca.location: found it with .*which has no TLS"),
        (
            config_of(security_protocol="SASL_SSL"),
            r"found nothing \(Kafka's default is GSSAPI\); allowed: P",
        ),
        (
            {**SASL, "sasl.mechanism": "GSSAPI"},
            "GSSAPI; allowed: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER",
        ),
        (
            SASL,
            "sasl.username: found nothing; allowed: both sasl.username and sasl.password, or sasl.jaas.config",
        ),
        ({**SASL, **LOGIN, "sasl.jaas.config": "x"}, "sasl.username: found a login beside sasl.jaas.config"),
        (
            {**SASL, "sasl.jaas.config": 'hunter2 username="u"'},
            "sasl.jaas.config: found no login of the form",
        ),
        (
            {**SASL, "sasl.jaas.config": f'{SCRAM} required username="u" password="hunter2";'},
            "found ScramLoginModule with sasl.mechanism=PLAIN; allowed: .*PlainLoginModule required username=",
        ),
        (
            {
                **SASL,
                "sasl.jaas.config": f'{PLAIN_MODULE} required username="u" password="hunter2" tokenauth="true";',
            },
            "the option tokenauth, which has no effect; allowed: password, username",
        ),
        (
            {**SASL, "sasl.jaas.config": f'{PLAIN_MODULE} required username="u";'},
            "no username or no password",
        ),
        ({**SASL, **LOGIN, "sasl.oauthbearer.token.endpoint.url": "file:/t"}, "it with sasl.mechanism=PLAIN"),
        (OAUTH, "sasl.oauthbearer.token.endpoint.url: found nothing; allowed: file:///PATH/OF/TOKEN"),
        (
            {**OAUTH, "sasl.oauthbearer.token.endpoint.url": "https://x"},
            "found https://x; allowed: file:///PATH",
        ),
        ({**TLS, "ssl.truststore.password": "hunter2"}, "found it without ssl.truststore.location"),
        ({**TLS, "ssl.keystore.key": "hunter2"}, "found it without ssl.keystore.certificate.chain"),
        (
            {**TLS, "ssl.ca.location": "a", "ssl.truststore.location": "b"},
            "ssl.ca.location: found it beside ssl.trust",
        ),
        (
            {**TLS, "ssl.truststore.location": "a", "ssl.truststore.type": "BKS"},
            "found BKS; allowed: PEM, PKCS12",
        ),
        ({**TLS, "ssl.truststore.location": ""}, "ssl.truststore.location: found nothing; allowed: a value"),
        ({**TLS, "ssl.endpoint.identification.algorithm": "http"}, "found http; allowed: https"),
    ],
)
def test_what_has_no_effect_is_refused(values: dict[str, str], told: str) -> None:
    with pytest.raises(CommandConfigError, match=told) as refused:
        command_config("f", values)
    assert "hunter2" not in str(refused.value)


def test_the_list_of_allowed_keys_is_whole() -> None:
    with pytest.raises(CommandConfigError) as refused:
        command_config("f", {"linger.ms": "1"})
    assert all(key in str(refused.value) for key in (*KEYS, "sasl.mechanisms"))


def written(tmp_path: Path, text: str, mode: int = 0o600) -> str:
    file = tmp_path / "client.properties"
    file.write_text(text)
    file.chmod(mode)
    return str(file)


def test_a_key_twice_is_refused_with_its_line(tmp_path: Path) -> None:
    path = written(tmp_path, "security.protocol=SSL\nsasl.mechanism=PLAIN\nsasl.mechanisms=PLAIN\n")
    with pytest.raises(CommandConfigError, match=r"line 3: sasl\.mechanism: found it twice; allowed: once"):
        read_command_config(path, FILES)


def test_the_mark_of_an_editor_belongs_to_no_key(tmp_path: Path) -> None:
    path = written(tmp_path, "\ufeffsecurity.protocol=SSL\r\n")
    assert read_command_config(path, FILES).values == {"security.protocol": "SSL"}


@pytest.mark.parametrize(
    "line",
    [
        "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQghunter2/hunter2",
        "eyJhbGciOiJub25lIn0.hunter2.hunter2",
    ],
)
def test_a_line_that_is_no_property_is_not_repeated(line: str, tmp_path: Path) -> None:
    """A private key without backslashes at its lines' ends, and a token's file in place of the properties."""
    with pytest.raises(CommandConfigError, match="a key that has no effect here") as refused:
        read_command_config(written(tmp_path, f"{line}\n"), FILES)
    assert "hunter2" not in str(refused.value)
    assert f"'{line[:8]}'…" in str(refused.value)


def test_a_file_that_others_may_read_is_warned_of(tmp_path: Path) -> None:
    text = "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=u\nsasl.password=p\n"
    told: list[str] = []
    client_security(written(tmp_path, text), FILES, told.append)
    assert told == []
    client_security(written(tmp_path, text, 0o644), FILES, told.append)
    assert len(told) == 1
    assert "every user of this machine may read or change it (mode 644); do: chmod o= " in told[0]
    assert told[0].endswith("It has sasl.password")


def test_a_file_without_a_secret_may_be_read_by_all(tmp_path: Path) -> None:
    told: list[str] = []
    client_security(written(tmp_path, "security.protocol=SSL\n", 0o644), FILES, told.append)
    assert told == []


def test_a_token_is_read_from_its_file_at_each_login(tmp_path: Path) -> None:
    token = tmp_path / "the token"
    token.write_text("first\n")
    url = f"file://{tmp_path}/the%20token"
    text = (
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
        f"sasl.oauthbearer.token.endpoint.url={url}\nsasl.jaas.config={BEARER} required;\n"
        f"sasl.login.callback.handler.class={BEARER_HANDLER}\n"
    )
    security = client_security(written(tmp_path, text), FILES, print)
    assert security.credentials is not None
    assert security.credentials() == Credentials("OAUTHBEARER", "", "first")
    token.write_text("second")
    assert security.credentials().secret == "second"
    token.unlink()
    with pytest.raises(CommandConfigError, match=r"token\.endpoint\.url: found .*the token: No such file"):
        security.credentials()


def test_librdkafka_is_told_the_same(tmp_path: Path) -> None:
    jaas = f'{SCRAM} required username="u" password="p\\"w";'
    values = config_of(
        security_protocol="sasl_ssl",
        sasl_mechanism="scram-sha-256",
        sasl_jaas_config=jaas,
        ssl_endpoint_identification_algorithm="",
    )
    signer = tmp_path / "signer.pem"
    signer.write_bytes(Authority().pem)
    told = command_config("f", {**values, "ssl.truststore.location": str(signer)}).librdkafka(FILES)
    assert told == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "u",
        "sasl.password": 'p"w',
        "ssl.ca.location": str(signer),
        "ssl.endpoint.identification.algorithm": "none",
    }


def test_librdkafka_gets_the_end_of_a_token(tmp_path: Path) -> None:
    claims = base64.urlsafe_b64encode(json.dumps({"exp": 1_234}).encode()).decode().rstrip("=")
    token = tmp_path / "token"
    token.write_text(f"h.{claims}.s")
    config = command_config("f", {**OAUTH, "sasl.oauthbearer.token.endpoint.url": f"file://{token}"})
    assert config.librdkafka(FILES)["oauth_cb"]("") == (f"h.{claims}.s", 1_234.0)


def test_java_is_told_the_same() -> None:
    given = config_of(security_protocol="SASL_SSL", sasl_mechanism="PLAIN", ssl_ca_location="/ca.pem")
    told = command_config("f", {**given, "sasl.username": "u", "sasl.password": 'p"w\\'}).kafka(FILES)
    assert told == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{PLAIN_MODULE} required username="u" password="p\\"w\\\\";',
        "ssl.truststore.location": "/ca.pem",
        "ssl.truststore.type": "PEM",
    }


@pytest.mark.parametrize("kind", ["PEM", "PKCS12"])
def test_other_clients_are_told_a_stores_kind_and_the_keys_password(kind: str, tmp_path: Path) -> None:
    """Java took a store without a type for a JKS, and librdkafka wasn't told a password that this client uses."""
    leaf = Authority().leaf()
    own = private(tmp_path / "own", leaf.pem("pw") if kind == "PEM" else leaf.p12("pw"))
    config = command_config("f", {**TLS, "ssl.keystore.location": own, "ssl.keystore.password": "pw"})
    config.client_security(FILES)
    assert config.kafka(FILES)["ssl.keystore.type"] == kind
    told = config.librdkafka(FILES)
    assert told["ssl.key.password" if kind == "PEM" else "ssl.keystore.password"] == "pw"


def test_a_keystore_that_others_may_read_is_refused(tmp_path: Path) -> None:
    own = Path(private(tmp_path / "own.pem", Authority().leaf().pem()))
    own.chmod(0o644)
    config = command_config("f", {**TLS, "ssl.keystore.location": str(own)})
    with pytest.raises(
        CommandConfigError, match=r"f: ssl\.keystore\.location: found .*every user of this machine"
    ):
        config.client_security(FILES)


def test_a_keystore_of_javas_own_form_is_refused_with_the_way_out(tmp_path: Path) -> None:
    store = tmp_path / "trust.jks"
    store.write_bytes(b"\xfe\xed\xfe\xed" + bytes(60))
    config = command_config("f", {**TLS, "ssl.truststore.location": str(store)})
    with pytest.raises(CommandConfigError, match=r"which is a keystore of Java .*keytool -importkeystore"):
        config.client_security(FILES)


def test_a_text_for_java_has_no_end_of_a_line_in_quotes() -> None:
    """Java's tokenizer ends the quotes there."""
    told = command_config("f", {**SASL, "sasl.username": "u", "sasl.password": "a\nb\rc"}).kafka(FILES)
    assert told["sasl.jaas.config"].endswith(r'password="a\nb\rc";')


def test_a_servers_text_is_one_line_without_a_terminals_commands() -> None:
    told = Credentials("PLAIN", "u", "p").refused("the server refuses: \x1b[2J\nno\u202e" + "x" * 9_000)
    assert told.startswith("login of 'u' by PLAIN: the server refuses: ?[2J?no?xxx")
    assert len(told) < 600


@pytest.mark.parametrize("password", [None, "hunter2"])
def test_pem_on_one_line_is_taken_as_kafka_takes_it(password: str | None) -> None:
    """OpenSSL wants lines: the key couldn't be read, and its password was blamed."""
    authority = Authority()
    leaf = authority.leaf()
    told = {
        "ssl.keystore.key": leaf.key_pem(password).decode().replace("\n", " "),
        "ssl.keystore.certificate.chain": leaf.certificate_pem.decode().replace("\n", " "),
        "ssl.truststore.certificates": authority.pem.decode().replace("\n", "  "),
    }
    if password is not None:
        told["ssl.key.password"] = password
    context = command_config("f", {**TLS, **told}).client_security(FILES).context
    assert context is not None
    assert len(context.get_ca_certs()) == 1


def test_a_representation_shows_no_secret() -> None:
    config = command_config("f", {**SASL, **LOGIN})
    assert "hunter2" not in repr(config)
    assert "hunter2" not in repr(config.credentials())
