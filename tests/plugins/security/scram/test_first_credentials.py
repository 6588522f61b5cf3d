"""``blumfeld format --add-scram`` reads Kafka's form, and a file in place of a password."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from blumfeld.client.security.scram import SHA_256, SHA_512, ScramMechanism
from blumfeld.kernel.runtime.real_files import RealFiles
from blumfeld.wire.messages.metadata_records import UserScramCredentialRecord
from blumfeld_security.exchanges.scram import credential_of
from blumfeld_security.scram.first_credentials import first_credential

SALT = b"0123456789abcdef"


def secret(size: int) -> bytes:
    return bytes(range(size))


def read(text: str) -> UserScramCredentialRecord:
    return first_credential(text, RealFiles(), secret)


def expected(
    mechanism: ScramMechanism, name: str, password: str, salt: bytes, iterations: int
) -> UserScramCredentialRecord:
    made = credential_of(mechanism, mechanism.salted_password(password, salt, iterations), salt, iterations)
    return UserScramCredentialRecord(
        name=name,
        mechanism=mechanism.number,
        salt=salt,
        stored_key=made.stored_key,
        server_key=made.server_key,
        iterations=iterations,
    )


def test_kafkas_form_is_read() -> None:
    salt, salted = base64.b64encode(SALT).decode(), SHA_256.salted_password("pencil", SALT, 4096)
    assert read("SCRAM-SHA-256=[name=alice,password=pencil]") == expected(
        SHA_256, "alice", "pencil", secret(26), 4096
    )
    assert read(
        f'SCRAM-SHA-512=[name="al,ice",iterations=8192,salt="{salt}",password="pen,cil"]'
    ) == expected(SHA_512, "al,ice", "pen,cil", SALT, 8192)
    text = base64.b64encode(salted).decode()
    assert read(f'SCRAM-SHA-256=[name=alice,salt={salt},saltedpassword="{text}"]') == expected(
        SHA_256, "alice", "pencil", SALT, 4096
    )


def test_a_password_comes_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("pencil\n")
    file.chmod(0o600)
    assert read(f"SCRAM-SHA-256=[name=alice,password-file={file}]") == expected(
        SHA_256, "alice", "pencil", secret(26), 4096
    )
    file.chmod(0o644)
    with pytest.raises(ValueError, match="do: chmod o="):
        read(f"SCRAM-SHA-256=[name=alice,password-file={file}]")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "found neither"),
        ("PLAIN=[name=alice,password=hunter2]", "found neither"),
        ("SCRAM-SHA-256=name=alice,password=hunter2", "found neither"),
        ("SCRAM-SHA-256=[]", "no name"),
        ("SCRAM-SHA-256=[password=hunter2]", "no name"),
        ("SCRAM-SHA-256=[name=alice]", "none of them"),
        ("SCRAM-SHA-256=[name=alice,password=]", "the password is empty"),
        ("SCRAM-SHA-256=[name=alice,password=hunter2,saltedpassword=eA==]", "password and saltedpassword"),
        ("SCRAM-SHA-256=[name=alice,saltedpassword=eA==]", "without the salt"),
        ("SCRAM-SHA-256=[name=alice,saltedpassword=eA==,salt=eA==]", "of 1 bytes"),
        ("SCRAM-SHA-256=[name=alice,password=hunter2,salt=%]", "salt is not base64"),
        ("SCRAM-SHA-256=[name=alice,password=hunter2,iterations=4095]", "4096 to 16384"),
        ("SCRAM-SHA-256=[name=alice,password=hunter2,iterations=16385]", "4096 to 16384"),
        ("SCRAM-SHA-256=[name=alice,password=hunter2,iterations=x]", "4096 to 16384"),
        ("SCRAM-SHA-256=[name=alice,name=bob,password=hunter2]", "comes twice"),
        ("SCRAM-SHA-256=[name=alice,colour=red,password=hunter2]", "unknown"),
        ("SCRAM-SHA-256=[name=alice,password-file=/absent]", "No such file"),
    ],
)
def test_another_form_is_refused_without_the_password(text: str, why: str) -> None:
    with pytest.raises(ValueError, match="--add-scram") as refused:
        read(text)
    assert why in str(refused.value)
    assert "hunter2" not in str(refused.value)
