"""An object store as a stranger would write it: found, named in a manifest, and offered to the storage."""

from __future__ import annotations

from tests.examples.stranger import EXAMPLES, Stranger

EXAMPLE = EXAMPLES / "acme_store_folder"
MANIFEST = '[plugins]\nstores = ["store_folder"]\n'


def test_it_is_found_by_its_entry_point(stranger: Stranger) -> None:
    plan = stranger.plan()
    assert any("stores" in line and "acme-store-folder 0.1.0" in line for line in plan.splitlines()), plan


def test_it_passes_the_contract_kit_as_its_author_would_run_it(stranger: Stranger) -> None:
    stranger.kit(EXAMPLE)
