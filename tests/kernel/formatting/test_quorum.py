"""The voters that a dynamic quorum begins with, and the combinations that formatting refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from blumfeld.kernel.formatting.directories import FIRST_CHECKPOINT
from blumfeld.kernel.formatting.quorum import InitialQuorum, in_words, initial_controllers
from blumfeld.metadata.image.checkpoint import Checkpoint, decode_checkpoint
from blumfeld.plugging.errors import ManifestError
from blumfeld.wire.primitives import uuid_text
from tests.kernel.formatting.formatted import all_formatted, formatted

ONE, TWO = "JEXY6aqzQY-32P5TStzaFg", "MvDxzVmcRsaTz33bUuRU6A"
CONTROLLERS = f"2@[::1]:9095:{TWO},1@h:9093:{ONE}"
BOTH = (
    "network.listeners=["
    '{name="PLAINTEXT", bind="127.0.0.1:9092"}, {name="C", kind="controller", bind="127.0.0.1:9093"}]'
)
SERVERS = 'config."controller.quorum.bootstrap.servers"="h:9093"'
BROKER = 'node.roles=["broker"]'


def first_checkpoint(data_dir: Path) -> Checkpoint:
    path = data_dir / FIRST_CHECKPOINT
    return decode_checkpoint(path.read_bytes(), path.name)


def test_a_standalone_node_is_the_only_voter(tmp_path: Path) -> None:
    meta = formatted(tmp_path, BOTH, quorum=InitialQuorum(standalone=True))
    checkpoint = first_checkpoint(tmp_path)
    assert (checkpoint.kraft_version, checkpoint.records) == (1, [])
    assert checkpoint.voters is not None
    assert in_words(checkpoint.voters) == f"1@127.0.0.1:9093:{uuid_text(meta.directory_id)}"
    (voter,) = checkpoint.voters.voters
    assert voter.endpoints[0].name == "C"
    assert voter.kraft_version_feature.max_supported_version == 1
    assert checkpoint.last_contained_ms > 0


def test_initial_controllers_take_the_directory_ids_of_the_list(tmp_path: Path) -> None:
    quorum = InitialQuorum(initial_controllers=initial_controllers(CONTROLLERS))
    first = formatted(tmp_path / "1", BOTH, quorum=quorum)
    second = formatted(tmp_path / "2", BOTH, "node.id=2", quorum=quorum)
    third = formatted(tmp_path / "3", BROKER, "node.id=3", SERVERS, quorum=quorum)
    assert [uuid_text(first.directory_id), uuid_text(second.directory_id)] == [ONE, TWO]
    assert uuid_text(third.directory_id) not in (ONE, TWO)
    for node in "123":
        voters = first_checkpoint(tmp_path / node).voters
        assert voters is not None
        assert in_words(voters) == f"1@h:9093:{ONE},2@::1:9095:{TWO}"


def test_only_the_first_directory_is_the_voters(tmp_path: Path) -> None:
    quorum = InitialQuorum(initial_controllers=initial_controllers(CONTROLLERS))
    directories = f'node.data_dirs=["{tmp_path}/a", "{tmp_path}/b"]'
    first, second = all_formatted(directories, BOTH, quorum=quorum).values()
    assert uuid_text(first.directory_id) == ONE != uuid_text(second.directory_id)
    assert not (tmp_path / "b" / FIRST_CHECKPOINT).exists()


@pytest.mark.parametrize("quorum", [InitialQuorum(), InitialQuorum(no_initial_controllers=True)])
def test_a_node_that_names_no_voter_has_no_checkpoint(tmp_path: Path, quorum: InitialQuorum) -> None:
    overrides = (BOTH, SERVERS) if quorum.is_dynamic else (BOTH,)
    formatted(tmp_path, *overrides, quorum=quorum)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bootstrap.checkpoint", "meta.properties"]


@pytest.mark.parametrize(
    ("quorum", "overrides", "complaint"),
    [
        (
            InitialQuorum(standalone=True),
            (BOTH, 'config."controller.quorum.voters"="1@h:9093"'),
            'config."controller.quorum.voters": found a static quorum, with one of --standalone',
        ),
        (
            InitialQuorum(),
            (BOTH, SERVERS),
            'config."controller.quorum.bootstrap.servers": found bootstrap servers, and no initial voters; '
            "allowed: one of --standalone, --initial-controllers or --no-initial-controllers, or",
        ),
        (
            InitialQuorum(standalone=True),
            (BROKER, SERVERS),
            "node.roles: found no controller, with --standalone; allowed: the role controller",
        ),
        (
            InitialQuorum(standalone=True),
            (),
            "network.listeners: found no listener for other controllers; allowed: one of kind controller, with",
        ),
        (
            InitialQuorum(standalone=True),
            (BOTH.replace(":9093", ":0"),),
            "network.listeners: found no listener for other controllers; allowed: one of kind controller, with",
        ),
        (
            InitialQuorum(no_initial_controllers=True),
            (BOTH,),
            'config."controller.quorum.bootstrap.servers": found none, with --no-initial-controllers; allowed: ',
        ),
    ],
)
def test_what_cannot_be_formatted_leaves_nothing(
    tmp_path: Path, quorum: InitialQuorum, overrides: tuple[str, ...], complaint: str
) -> None:
    with pytest.raises(ManifestError) as caught:
        formatted(tmp_path / "data", *overrides, quorum=quorum)
    lines = str(caught.value).splitlines()
    assert any(line.startswith(f"m.toml: {complaint}") for line in lines), lines
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "a directory id behind the last colon"),
        ("1@h:9093", "a directory id behind the last colon"),
        (f"h:9093:{ONE}", "ID@HOST:PORT"),
        (f"1@h:9093:{ONE},1@h:9094:{TWO}", "each id once"),
        (f"1@h:9093:{ONE},2@h:9093:{TWO}", "an address of its own"),
        (f"1@h:9093:{ONE},2@h:9094:{ONE}", "a directory id of its own"),
    ],
)
def test_a_list_of_controllers_that_cannot_be(text: str, complaint: str) -> None:
    with pytest.raises(ManifestError, match=complaint) as caught:
        initial_controllers(text)
    assert str(caught.value).startswith("--initial-controllers: found ")
