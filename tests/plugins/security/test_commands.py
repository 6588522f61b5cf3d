"""``blumfeld security hash-password``."""

from __future__ import annotations

import tomllib

from typer.testing import CliRunner

from blumfeld_security.commands import app
from blumfeld_security.exchanges.passwords import is_password, read_hash

RUNNER = CliRunner()


def test_a_password_from_the_standard_input_is_hashed() -> None:
    done = RUNNER.invoke(app, ["hash-password"], input="pencil\n")
    assert done.exit_code == 0
    assert "pencil" not in done.output
    assert is_password(read_hash(done.output.strip()), "pencil")


def test_a_line_for_the_file_has_the_users_name() -> None:
    name = 'al"ice\\=1'
    done = RUNNER.invoke(app, ["hash-password", "--user", name], input="pencil\n")
    [(user, hashed)] = tomllib.loads(done.output).items()
    assert user == name
    assert is_password(read_hash(hashed), "pencil")


def test_two_hashes_of_one_password_differ() -> None:
    first, second = (RUNNER.invoke(app, ["hash-password"], input="pencil\n").output for _ in range(2))
    assert first != second


def test_an_empty_password_is_refused() -> None:
    done = RUNNER.invoke(app, ["hash-password"], input="\n")
    assert done.exit_code == 1
    assert "the password is empty" in done.output
