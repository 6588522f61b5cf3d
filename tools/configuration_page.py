"""Write docs/configuration.md from the tables of keys and of what becomes of them.

    python tools/configuration_page.py > docs/configuration.md

tests/config/test_configuration_page.py holds the page to what this prints.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from blumfeld.config.definitions import Definitions
from blumfeld.config.effects import FIXED, HONOURED, REFUSED, WITHOUT, KeyEffect, effect_of
from blumfeld.config.values import BROKER_CONFIGS, GROUP_CONFIGS, TOPIC_CONFIGS, ConfigDef, render

INTRODUCTION = """\
# Configuration

This page lists each of Kafka 4.3.1's configuration keys with its effect here. It is written by
`tools/configuration_page.py`; don't edit it by hand. Broker keys are set under `[config]` in the
[manifest](manifest.md), flat and quoted, or by IncrementalAlterConfigs. Topic and group keys are set by
CreateTopics and IncrementalAlterConfigs.

Each key is in exactly one class:

* **honoured**: the value is used.
* **fixed**: only Kafka's default is accepted, because another value would have no effect.
* **without effect**: any value that Kafka allows is accepted and changes nothing. `blumfeld plan` shows such
  keys with their reason, `blumfeld run` warns of them once. A broker that finds them in the cluster's
  metadata warns, too.
* **refused**: any value but Kafka's default would promise something that isn't there. The manifest is refused
  before anything opens; AlterConfigs and CreateTopics answer with an error.

A refused or fixed key that stands in metadata which Apache Kafka wrote doesn't keep the broker from starting.
The log names it.

A listener may have its own value of {of_listeners}
and, with a security plug-in, of each key that begins with `ssl.` or `sasl.`:
`"listener.name.<name in lower case>.<key>"`. The prefix is refused with every other honoured key, and for a listener
that the node doesn't have. Without a security plug-in a listener is never named `SSL`, `SASL_PLAINTEXT` or
`SASL_SSL`, and `listener.security.protocol.map` gives it no protocol but PLAINTEXT.
"""
TITLES = {HONOURED: "Honoured", FIXED: "Fixed", REFUSED: "Refused", WITHOUT: "Without effect here"}
SCOPES = (("Broker", BROKER_CONFIGS), ("Topic", TOPIC_CONFIGS), ("Group", GROUP_CONFIGS))


def page() -> Iterator[str]:
    """The page's lines."""
    of_listeners = [f"`{name}`" for name in BROKER_CONFIGS if _is_of_listeners(name)]
    yield INTRODUCTION.format(of_listeners=",\n".join(of_listeners))
    yield "| | " + " | ".join(TITLES.values()) + " |"
    yield "|---|" + "--:|" * len(TITLES)
    for title, definitions in SCOPES:
        counts = Counter(effect_of(defn).effect for defn in definitions.values())
        yield f"| {title.lower()} keys | " + " | ".join(str(counts[effect]) for effect in TITLES) + " |"
    for title, definitions in SCOPES:
        for effect, name in TITLES.items():
            yield from _table(f"{title} keys: {name.lower()}", definitions, effect)
    yield from _with("tiers", "tiered storage", "`[storage]` names `storage_tiered`")
    yield from _with("secures", "security", "`[security]` names a plug-in")
    yield from _with("limits", "quotas", "`[quotas]` names `quotas`")


def _is_of_listeners(name: str) -> bool:
    return effect_of(BROKER_CONFIGS[name]).of_listeners and not name.startswith(("ssl.", "sasl."))


def _with(ability: str, title: str, where: str) -> Iterator[str]:
    """The keys of which another thing holds in a build with this ability."""
    yield f"\n## With {title}\n"
    yield f"Where {where}, these keys differ:\n"
    yield "| key | | where, or why |"
    yield "|---|---|---|"
    for _, definitions in SCOPES:
        for defn in definitions.values():
            effect = effect_of(defn, {ability})
            if effect != effect_of(defn):
                yield f"| `{defn.name}` | {TITLES[effect.effect].lower()} | {_where(effect)} |"


def _table(title: str, definitions: Definitions, effect: str) -> Iterator[str]:
    rows = [defn for defn in definitions.values() if effect_of(defn).effect == effect]
    if not rows:
        return
    yield f"\n## {title}\n"
    yield f"| key | default | | {'where' if effect == HONOURED else 'why'} |"
    yield "|---|---|---|---|"
    for defn in rows:
        own_effect = effect_of(defn)
        yield f"| `{defn.name}` | {_default(defn)} | {own_effect.documentation} | {_where(own_effect)} |"


def _default(defn: ConfigDef) -> str:
    text = render(defn, defn.default)
    return "" if not text else f"`{text}`"


def _where(effect: KeyEffect) -> str:
    if effect.effect != HONOURED:
        return effect.where
    if effect.section is not None:
        return f"the manifest's `{effect.section}`"
    kind, _, key = effect.where.rpartition(" ")
    place = f"{kind} `{key}`".strip()
    if effect.where.startswith("topic "):
        place = f"the default of `{key}`"
    if effect.where.startswith("unit of "):
        place = f"another unit of `{key}`"
    return f"{place}; read at start" if effect.read_at_start else place


if __name__ == "__main__":
    print("\n".join(page()))
