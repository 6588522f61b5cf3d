"""The name of a certificate is written as Java writes it; a stranger's bytes are refused."""

from __future__ import annotations

import random

import pytest
from cryptography import x509
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID

from blumfeld.client.security.certificate import MalformedError, in_pem, name_of, parse
from tests.plugins.security.tls.authority import AUTHORITY, CLIENT, SERVER

Attribute = x509.NameAttribute


@pytest.mark.parametrize(
    ("attributes", "java"),
    [
        (
            [
                Attribute(NameOID.COUNTRY_NAME, "DE"),
                Attribute(NameOID.ORGANIZATION_NAME, "A, B + C"),
                Attribute(NameOID.COMMON_NAME, "kunde #1=x"),
            ],
            r"CN=kunde \#1\=x,O=A\, B \+ C,C=DE",
        ),
        ([Attribute(NameOID.COMMON_NAME, " lead and trail ")], r"CN=\ lead and trail\ "),
        (
            [
                Attribute(NameOID.EMAIL_ADDRESS, "a@b.c"),
                Attribute(NameOID.COMMON_NAME, 'ünïcode "q" \\ ; <>'),
            ],
            r"CN=ünïcode \"q\" \\ \; \<\>,1.2.840.113549.1.9.1=#16056140622e63",
        ),
        (
            [
                Attribute(NameOID.STATE_OR_PROVINCE_NAME, "S"),
                Attribute(NameOID.STREET_ADDRESS, "St"),
                Attribute(NameOID.USER_ID, "u"),
                Attribute(NameOID.SERIAL_NUMBER, "77"),
                Attribute(NameOID.LOCALITY_NAME, "L"),
                Attribute(NameOID.SURNAME, "sn"),
            ],
            "2.5.4.4=#0c02736e,L=L,2.5.4.5=#13023737,UID=u,STREET=St,ST=S",
        ),
        ([Attribute(NameOID.COMMON_NAME, "a\0b\nc")], "CN=a\\00b\nc"),
        (
            [Attribute(NameOID.COMMON_NAME, "#hash"), Attribute(NameOID.ORGANIZATION_NAME, "   ")],
            r"O=\ \ \ ,CN=\#hash",
        ),
        ([Attribute(NameOID.COMMON_NAME, "t61é", _ASN1Type.T61String)], "CN=t61é"),
        ([], ""),
    ],
)
def test_a_name_is_written_as_java_writes_it(attributes: list[x509.NameAttribute[str]], java: str) -> None:
    """The right side was printed by Java 17's X500Principal.getName()."""
    assert name_of(x509.Name(attributes).public_bytes()) == java


def test_a_name_with_several_values_in_one_part_joins_them() -> None:
    both = x509.RelativeDistinguishedName(
        [Attribute(NameOID.COMMON_NAME, "multi"), Attribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "zwei")]
    )
    last = x509.RelativeDistinguishedName([Attribute(NameOID.DOMAIN_COMPONENT, "com")])
    assert name_of(x509.Name([both, last]).public_bytes()) == "DC=com,OU=zwei+CN=multi"


def test_a_certificate_has_its_name_times_and_alternative_names() -> None:
    parsed = parse(CLIENT.der)
    assert parsed.subject == "CN=Alice,OU=Trade,O=Firm,C=DE"
    assert parsed.not_before_s == CLIENT.certificate.not_valid_before_utc.timestamp()
    assert parsed.not_after_s == CLIENT.certificate.not_valid_after_utc.timestamp()
    assert parsed.alternative_names == {b"\x82\x09localhost", b"\x87\x04\x7f\x00\x00\x01"}
    far = parse(AUTHORITY.leaf(until_days=365 * 40, hosts=()).der)
    assert far.alternative_names == frozenset()
    assert far.not_after_s > parsed.not_after_s + 365 * 38 * 86_400


def test_certificates_are_found_in_pem_in_their_order() -> None:
    found = in_pem(SERVER.pem())
    assert found[0] == SERVER.der
    assert [parse(der).subject for der in found] == ["CN=node,O=Firm", "CN=signer"]


def test_a_spoiled_certificate_is_refused_and_never_another_error() -> None:
    chance = random.Random(5)
    refused = 0
    for _ in range(3_000):
        spoiled = bytearray(CLIENT.der)
        for _ in range(chance.randrange(1, 4)):
            spoiled[chance.randrange(200)] = chance.randrange(256)
        if chance.random() < 0.3:
            del spoiled[chance.randrange(len(spoiled)) :]
        try:
            parse(bytes(spoiled))
        except MalformedError:
            refused += 1
    assert refused > 1_000
