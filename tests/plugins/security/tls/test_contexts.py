"""Keys and certificates come from PEM and PKCS12; an unusable file is refused in words that hold no secret."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from blumfeld.client.security.stores import TlsConfigError
from blumfeld.client.security.tls import Made
from blumfeld.config.values import BrokerConfig
from blumfeld.kernel.runtime.real_files import RealFiles
from blumfeld_security.tls.contexts import client_context, server_context
from blumfeld_security.tls.options import TlsOptions
from blumfeld_security.tls.settings import settings_of
from campaigns.certificates import private
from tests.plugins.security.tls.authority import AUTHORITY, CLIENT, SERVER

PASSWORD = "SESAME"


def made(given: dict[str, str], *, dials: bool = False) -> Made:
    """The context of the listener SSL."""
    settings = settings_of(BrokerConfig(given), "SSL", with_sasl=False, dials=dials)
    return (client_context if dials else server_context)(RealFiles(), settings)


def pem(path: str, **more: str) -> dict[str, str]:
    """A keystore in PEM."""
    keys = {key.replace("_", "."): value for key, value in more.items()}
    return {"ssl.keystore.type": "PEM", "ssl.keystore.location": path, **keys}


def test_a_key_comes_from_pem_with_and_without_a_password(tmp_path: Path) -> None:
    plain = made(pem(private(tmp_path / "a.pem", SERVER.pem())))
    assert plain.certificate is not None
    assert plain.certificate.subject == "CN=node,O=Firm"
    path = private(tmp_path / "b.pem", SERVER.pem(PASSWORD))
    assert made(pem(path, ssl_key_password=PASSWORD)).certificate == plain.certificate


def test_a_key_comes_from_pkcs12(tmp_path: Path) -> None:
    path = private(tmp_path / "a.p12", SERVER.p12(PASSWORD))
    given = {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": path, "ssl.keystore.password": PASSWORD}
    certificate = made(given).certificate
    assert certificate is not None
    assert certificate.subject == "CN=node,O=Firm"


def test_a_key_comes_from_the_configuration_itself() -> None:
    given = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": SERVER.key_pem().decode(),
        "ssl.keystore.certificate.chain": SERVER.certificate_pem.decode(),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": AUTHORITY.pem.decode(),
        "ssl.client.auth": "required",
    }
    assert made(given).certificate is not None


def test_a_private_key_that_everybody_may_read_is_refused(tmp_path: Path) -> None:
    path = private(tmp_path / "a.pem", SERVER.pem())
    for mode in (0o644, 0o602):
        (tmp_path / "a.pem").chmod(mode)
        with pytest.raises(TlsConfigError, match=r"may read or change it.*chmod o="):
            made(pem(path))
    (tmp_path / "a.pem").chmod(0o640)
    made(pem(path))
    locked = private(tmp_path / "b.pem", SERVER.pem(PASSWORD))
    (tmp_path / "b.pem").chmod(0o644)
    made(pem(locked, ssl_key_password=PASSWORD))


def refusals(folder: Path) -> dict[str, tuple[dict[str, str], str]]:
    """Wrong files: name → (configuration, words of the refusal)."""
    other = AUTHORITY.leaf()
    return {
        "missing": (pem(str(folder / "nowhere.pem")), "No such file"),
        "folder": (pem(str(folder)), "directory"),
        "no key": (pem(private(folder / "1", SERVER.certificate_pem)), "no private key"),
        "no certificate": (pem(private(folder / "2", SERVER.key_pem())), "no certificate"),
        "another's key": (
            pem(private(folder / "3", other.key_pem() + SERVER.certificate_pem)),
            "doesn't belong to its first certificate",
        ),
        "wrong password": (
            pem(private(folder / "4", SERVER.pem(PASSWORD)), ssl_key_password="WRONG"),
            "can't be read",
        ),
        "no password": (pem(private(folder / "5", SERVER.pem(PASSWORD))), "can't be read"),
        "PKCS12 as PEM": (pem(private(folder / "6", SERVER.p12(PASSWORD))), "private key"),
        "spoiled": (
            pem(private(folder / "7", SERVER.key_pem() + SERVER.certificate_pem.replace(b"M", b"N"))),
            "no certificate",
        ),
        "wrong password of PKCS12": (
            {
                "ssl.keystore.type": "PKCS12",
                "ssl.keystore.location": private(folder / "8", SERVER.p12(PASSWORD)),
                "ssl.keystore.password": "WRONG",
            },
            "this password doesn't open",
        ),
        "PEM as PKCS12": (
            {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": private(folder / "9", SERVER.pem())},
            "is no PKCS12",
        ),
        "truststore without certificates": (
            {
                **pem(private(folder / "10", SERVER.pem())),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": private(folder / "11", b"nothing"),
                "ssl.client.auth": "required",
            },
            "no certificate",
        ),
    }


def test_a_wrong_file_is_refused_in_words_without_secrets(tmp_path: Path) -> None:
    for kind, (given, words) in refusals(tmp_path).items():
        with pytest.raises(TlsConfigError) as refused:
            made(given)
        text = str(refused.value)
        assert words in text, kind
        assert PASSWORD not in text, kind
        assert "WRONG" not in text, kind
        assert "PRIVATE" not in text, kind
        assert "store" in refused.value.key


def test_spoiled_files_are_refused_and_never_another_error(tmp_path: Path) -> None:
    """A file may change under a running node: another error would stop it."""
    chance = random.Random(6)
    good = {"PEM": SERVER.pem(), "PKCS12": SERVER.p12(PASSWORD)}
    path, trust = tmp_path / "k", tmp_path / "t"
    refused = 0
    for nth in range(200):
        kind = "PKCS12" if nth % 8 == 0 else "PEM"
        spoiled, trusted = bytearray(good[kind]), bytearray(AUTHORITY.pem)
        for data in (spoiled, trusted):
            for _ in range(chance.randrange(3)):
                data[chance.randrange(len(data))] = chance.randrange(256)
        given = {
            "ssl.keystore.type": kind,
            "ssl.keystore.location": private(path, bytes(spoiled)),
            "ssl.keystore.password": PASSWORD,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": private(trust, bytes(trusted)),
            "ssl.client.auth": "required",
        }
        try:
            made(given)
        except TlsConfigError:
            refused += 1
    assert 50 < refused < 200


def test_a_truststore_may_have_remarks_in_any_language(tmp_path: Path) -> None:
    remark = "# für Kunden\n".encode()
    given = {
        **pem(private(tmp_path / "k", SERVER.pem())),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": private(tmp_path / "t", remark + AUTHORITY.pem),
        "ssl.client.auth": "required",
    }
    assert made(given).context.cert_store_stats()["x509_ca"] == 1


def test_a_password_that_is_too_long_is_refused(tmp_path: Path) -> None:
    path = private(tmp_path / "k", SERVER.pem(PASSWORD))
    with pytest.raises(TlsConfigError, match="more than 1023 bytes"):
        made(pem(path, ssl_key_password="x" * 2_000))


def test_a_revoked_certificate_is_known_from_a_list(tmp_path: Path) -> None:
    given = {
        **pem(private(tmp_path / "k", SERVER.pem())),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": private(tmp_path / "t", AUTHORITY.pem),
        "ssl.client.auth": "required",
    }
    settings = settings_of(BrokerConfig(given), "SSL", with_sasl=False)
    lists = (private(tmp_path / "crl", AUTHORITY.revocation_list(CLIENT)),)
    served = server_context(RealFiles(), settings, TlsOptions(revocation_lists=lists)).context
    assert served.cert_store_stats()["crl"] == 1
    no_list = TlsOptions(revocation_lists=(private(tmp_path / "no", AUTHORITY.pem),))
    with pytest.raises(TlsConfigError, match="no list"):
        server_context(RealFiles(), settings, no_list)


def test_without_a_truststore_the_systems_certificates_are_trusted() -> None:
    context = made({}, dials=True).context
    assert context.check_hostname
    assert made({"ssl.endpoint.identification.algorithm": ""}, dials=True).context.check_hostname is False
