"""Hashed passwords of PLAIN, and the file that they lie in."""

from __future__ import annotations

import pytest

from blumfeld_security.exchanges.passwords import PasswordHash, hash_password, is_password, read_hash

SALT = b"0123456789abcdef"
HASHED = hash_password("pencil", SALT)


def test_a_password_is_known_by_its_hash_alone() -> None:
    text = str(HASHED)
    assert text.startswith("$scrypt$ln=14,r=8,p=1$MDEyMzQ1Njc4OWFiY2RlZg$")
    assert "pencil" not in text
    read = read_hash(text)
    assert read == HASHED
    assert is_password(read, "pencil")
    assert not is_password(read, "Pencil")
    assert not is_password(read, "")
    assert "MDEy" not in repr(HASHED)


def test_a_salt_makes_another_hash() -> None:
    assert hash_password("pencil", b"another salt 16.").digest != HASHED.digest


@pytest.mark.parametrize(
    "text",
    [
        "",
        "pencil",
        "$scrypt$ln=14,r=8,p=1$MDEyMzQ1Njc4OWFiY2RlZg",
        "$scrypt$ln=99,r=8,p=1$MDEyMzQ1Njc4OWFiY2RlZg$" + "A" * 43,
        "$scrypt$ln=9,r=8,p=1$MDEyMzQ1Njc4OWFiY2RlZg$" + "A" * 43,
        "$scrypt$ln=20,r=32,p=1$MDEyMzQ1Njc4OWFiY2RlZg$" + "A" * 43,
        "$scrypt$ln=14,r=8,p=99$MDEyMzQ1Njc4OWFiY2RlZg$" + "A" * 43,
        "$scrypt$ln=14,r=0,p=1$MDEyMzQ1Njc4OWFiY2RlZg$" + "A" * 43,
        "$scrypt$ln=14,r=8,p=1$MDEy$" + "A" * 43,
        "$scrypt$ln=14,r=8,p=1$MDEyMzQ1Njc4OWFiY2RlZg$AAAA",
        "$scrypt$ln=14,r=8,p=1$MDEyMzQ1Njc4OWFiY2RlZg$AAAAA",
        "$pbkdf2$ln=14,r=8,p=1$MDEyMzQ1Njc4OWFiY2RlZg$" + "A" * 43,
    ],
)
def test_another_text_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(ValueError, match="hash") as refused:
        read_hash(text)
    assert not text or text not in str(refused.value)


def test_hashes_of_one_cost_take_the_same_whatever_the_password() -> None:
    """A hash of nobody is as expensive as the first user's."""
    nobody = PasswordHash(HASHED.log2_n, HASHED.block, HASHED.parallel, bytes(16), bytes(32))
    assert not is_password(nobody, "pencil")
