"""Write the index of core/blumfeld/wire/messages/ from the modules that are there.

    python tools/messages_page.py > core/blumfeld/wire/messages/README.md

tests/wire/test_messages_page.py holds the page to what this prints.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from blumfeld.wire.api import request_class
from blumfeld.wire.api_table import APIS, OTHER_MESSAGES

ROOT = Path(__file__).resolve().parents[1]
MESSAGES = ROOT / "core" / "blumfeld" / "wire" / "messages"

INTRODUCTION = """\
# Messages

Every message of Apache Kafka 4.3.1, one module an API, and keys 4 to 7 of Kafka 3.9.2, which only a cluster with a
ZooKeeper speaks. `tools/convert_messages.py` writes the modules from Kafka's message schemas, with the docstrings of
`tools/message_docs.toml`; don't edit them by hand. `tools/messages_page.py` writes this page.

A class stands for all versions of its message: each field says which versions have it, in the language of `schema.py`.
The codec (`codec.py`) makes a decoder and an encoder for a class and a version on first use. Which versions a broker
serves is in `docs/apis.md`.
"""


def page() -> str:
    """The whole page."""
    lines = [
        INTRODUCTION,
        "## APIs",
        "",
        "| key | API | module | versions | flexible from |",
        "|--:|---|---|---|---|",
    ]
    for info in APIS.values():
        meta = request_class(info.key).meta
        unstable = " (the last one is unstable)" if info.latest_unstable else ""
        flexible = str(meta.flexible).removesuffix("+").partition("-")[0]
        lines.append(
            f"| {info.key} | {info.name} | {_link(info.module)} | {meta.valid}{unstable} | {flexible} |"
        )
    lines += ["", "## Records, headers and other data", "", "| module | holds | messages |", "|---|---|---|"]
    for module in sorted(set(OTHER_MESSAGES.values())):
        named = ", ".join(name for name, where in OTHER_MESSAGES.items() if where == module)
        doc = (import_module(f"blumfeld.wire.messages.{module}").__doc__ or "").strip()
        lines.append(f"| {_link(module)} | {doc} | {named} |")
    return "\n".join(lines) + "\n"


def modules() -> set[str]:
    """The modules that are there."""
    return {path.stem for path in MESSAGES.glob("*.py")} - {"__init__"}


def _link(module: str) -> str:
    return f"[{module}]({module}.py)"


if __name__ == "__main__":
    print(page(), end="")
