"""Write core/blumfeld/wire/messages/ and wire/api_table.py from a dump of Kafka's schemas.

A one-off, kept because a new Kafka release means running it again and reading the diff::

    python tools/convert_messages.py PROTOCOL_JSON --zookeeper ZOOKEEPER_JSON [--docs tools/message_docs.toml]

The dump is a JSON object with a list ``messages`` in Kafka's own schema form, defaults as text. The second is such a
list from Kafka 3.9, the last with a ZooKeeper: messages whose API key Kafka has given up since come from it. Docstrings
written by hand live in the file that ``--docs`` names, by class, so that a second run keeps them. Afterwards run
tools/messages_page.py, which writes the index of the modules.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import textwrap
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
WIRE = ROOT / "core" / "blumfeld" / "wire"
Json = dict[str, Any]

PYTHON_TYPES = {
    "bool": "bool",
    "string": "str",
    "bytes": "bytes",
    "records": "Records",
    "uuid": "bytes",
    "float64": "float",
}
TYPE_DEFAULTS = {"bool": "False", "string": '""', "bytes": 'b""', "uuid": "ZERO_UUID", "float64": "0.0"}
BANNER = """\
# Written by tools/convert_messages.py from the message schemas of Apache Kafka {}; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""
KAFKA, ZOOKEEPERS_KAFKA = "4.3.1", "3.9.2"
ZOOKEEPERS_LISTENER = "zkBroker"
"""The kind of listener that only the APIs of Kafka 3.9 have."""
ODD_NAMES = {
    "isKRaftController": "is_kraft_controller",
    "KRaftVersion": "kraft_version",
    "KRaftVersionFeature": "kraft_version_feature",
}

DATA_MODULES = {
    "ConsumerProtocolAssignment": "consumer_protocol",
    "ConsumerProtocolSubscription": "consumer_protocol",
    "ControlRecordTypeSchema": "control_records",
    "EndTxnMarker": "control_records",
    "DefaultPrincipalData": "default_principal",
    "KRaftVersionRecord": "raft_records",
    "LeaderChangeMessage": "raft_records",
    "SnapshotFooterRecord": "raft_records",
    "SnapshotHeaderRecord": "raft_records",
    "VotersRecord": "raft_records",
    "QuorumStateData": "quorum_state",
    "ProducerSnapshot": "producer_snapshot",
    "SubscriptionInfoData": "streams_subscription",
}
MODULE_DOCS = {
    "headers": "The headers before every request and response.",
    "consumer_protocol": "The data that classic consumers put into JoinGroup and SyncGroup, behind an int16 version.",
    "control_records": "Key and value of the control records that end a transaction.",
    "default_principal": "A principal as it travels in Envelope requests and delegation tokens.",
    "raft_records": "The values of KRaft's control records, written without a version before them.",
    "quorum_state": "The quorum-state file, which is this message in JSON.",
    "producer_snapshot": "The file of producer state beside a log segment.",
    "streams_subscription": "The user data of Kafka Streams' classic consumers.",
    "metadata_records": "The records of __cluster_metadata, framed by version 1, record type, version.",
    "remote_log_metadata_records": "The records of __remote_log_metadata, framed like metadata records.",
    "group_coordinator_records": "The records of __consumer_offsets: keys by record type, values by version.",
    "share_coordinator_records": "The records of __share_group_state: keys by record type, values by version.",
    "transaction_coordinator_records": "The records of __transaction_state: keys by record type.",
}


def snake_case(name: str) -> str:
    """``ThrottleTimeMs`` as ``throttle_time_ms``."""
    if name in ODD_NAMES:
        return ODD_NAMES[name]
    return (
        re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower().replace("2_pc", "_2pc")
    )


def camel_case(name: str) -> str:
    """As the schema language derives it from a field's name."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def module_of(message: Json) -> str:
    """The module below messages/ that a message goes to."""
    kind, name = message["type"], message["name"]
    if kind in ("request", "response"):
        return snake_case(name.removesuffix("Request").removesuffix("Response"))
    if kind == "header":
        return "headers"
    if kind == "data":
        return DATA_MODULES[name]
    if kind == "metadata":
        return "metadata_records" if message["module"] == "metadata" else "remote_log_metadata_records"
    return f"{snake_case(message['module'].replace('-', '_'))}_records"


def from_zookeeper(request: Json) -> bool:
    """Whether this request is one that only Kafka with a ZooKeeper has."""
    return ZOOKEEPERS_LISTENER in request.get("listeners", ())


class Module:
    """The source of one module, built message by message."""

    def __init__(self, name: str, messages: list[Json], docs: dict[str, str]) -> None:
        self.name = name
        self.messages = messages
        self.docs = docs
        self.class_names = self._name_structs()
        self.written: set[str] = set()
        self.body: list[str] = []
        self.imports: set[str] = {"Api", "Message"}

    def _structs(self, message: Json) -> dict[str, list[Json]]:
        structs: dict[str, list[Json]] = {s["name"]: s["fields"] for s in message.get("commonStructs", [])}

        def walk(fields: list[Json]) -> None:
            for field in fields:
                if "fields" in field:
                    structs[field["type"].removeprefix("[]")] = field["fields"]
                    walk(field["fields"])

        walk(message["fields"])
        for fields in list(structs.values()):
            walk(fields)
        return structs

    def _name_structs(self) -> dict[tuple[str, str], str]:
        """(message, struct) → class. Two structs of one name and different fields get a prefix."""
        shapes: dict[str, set[str]] = defaultdict(set)
        owners: list[tuple[str, str]] = []
        for message in self.messages:
            for struct, fields in self._structs(message).items():
                shapes[struct].add(json.dumps(fields, sort_keys=True))
                owners.append((message["name"], struct))
        names = {}
        for message_name, struct in owners:
            prefix = ""
            if len(shapes[struct]) > 1 or struct in {m["name"] for m in self.messages}:
                prefix = message_name
                if message_name.endswith(("Request", "Response")):
                    prefix = "Request" if message_name.endswith("Request") else "Response"
            names[message_name, struct] = prefix + struct
        self._propagate(names)
        return names

    def _propagate(self, names: dict[tuple[str, str], str]) -> None:
        """A struct that holds a prefixed struct is not the same in both messages either."""
        changed = True
        while changed:
            changed = False
            for message in self.messages:
                for struct, fields in self._structs(message).items():
                    key = (message["name"], struct)
                    shared = any(k != key and v == names[key] for k, v in names.items())
                    holds = [names[message["name"], t] for t in struct_types(fields)]
                    if shared and any(n != t for n, t in zip(holds, struct_types(fields), strict=True)):
                        names[key] = message["name"] + struct
                        changed = True

    def write_message(self, message: Json) -> None:
        structs = self._structs(message)
        self._write_needed(message, message["fields"], structs)
        valid, flexible = message["validVersions"], message["flexibleVersions"]
        key = message.get("apiKey")
        meta = f'    meta: ClassVar[Api] = Api("{message["name"]}", {key}, "{message["type"]}", '
        meta += f'valid="{valid}", flexible="{flexible}")\n\n'
        self._write_class(message, message["name"], "Message", message["fields"], meta, message_doc(message))

    def _write_needed(self, message: Json, fields: list[Json], structs: dict[str, list[Json]]) -> None:
        for struct in struct_types(fields):
            name = self.class_names[message["name"], struct]
            if name in self.written:
                continue
            self.written.add(name)
            self._write_needed(message, structs[struct], structs)
            within = [m["name"] for m in self.messages if self.class_names.get((m["name"], struct)) == name]
            self.imports.add("Struct")
            doc = f"Part of {', '.join(within)}."
            self._write_class(message, name, "Struct", structs[struct], "", doc)

    def _write_class(
        self, message: Json, name: str, base: str, fields: list[Json], meta: str, doc: str
    ) -> None:
        lines = [self._field(message, field) for field in fields]
        docstring = self.docs.get(name if base == "Message" else f"{self.name}.{name}", doc).strip()
        quoted = quoted_docstring(docstring)
        self.body.append(f"class {name}({base}):\n{quoted}\n\n{meta}" + "\n".join(lines))

    def _field(self, message: Json, field: Json) -> str:
        kind: str = field["type"]
        array = kind.startswith("[]")
        plain = kind.removeprefix("[]")
        struct = plain[0].isupper()
        nullable = field.get("nullableVersions")
        if struct:
            python = self.class_names[message["name"], plain]
            wire = "[]struct" if array else "struct"
        else:
            python = PYTHON_TYPES.get(plain, "int")
            wire = kind
        if array:
            python = f"list[{python}]"
        default = self._default(field, array, struct, plain, python)
        if nullable or default == "None":
            python += " | None"
        if plain == "records":
            self.imports.add("Records")
        self.imports.add("Wire")
        name = snake_case(field["name"])
        options = self._wire_options(field, name)
        return f'    {name}: Annotated[{python}, Wire("{wire}"{options})] = {default}'

    def _default(self, field: Json, array: bool, struct: bool, plain: str, python: str) -> str:
        text: str | None = field.get("default")
        if text == "null":
            return "None"
        if array:
            self.imports.add("field")
            return "field(default_factory=list)"
        if struct:
            self.imports.add("field")
            return f"field(default_factory={python})"
        if plain == "records":
            return "None"
        if text is None or text == "":
            if plain == "uuid":
                self.imports.add("ZERO_UUID")
            return TYPE_DEFAULTS.get(plain, "0")
        if plain == "bool":
            return text.capitalize()
        if plain == "string":
            return json.dumps(text)
        if plain == "float64":
            return str(float(text))
        number = int(text, 0)
        named = {2147483647: "2**31 - 1", -2147483648: "-(2**31)", 9223372036854775807: "2**63 - 1"}
        return named.get(number, str(number))

    def _wire_options(self, field: Json, name: str) -> str:
        options = ""
        if field["versions"] != "0+":
            options += f', versions="{field["versions"]}"'
        if field.get("nullableVersions"):
            options += f', nullable="{field["nullableVersions"]}"'
        if "tag" in field:
            options += f', tag={field["tag"]}, tagged="{field["taggedVersions"]}"'
        if str(field.get("ignorable", "")).lower() == "true":
            options += ", ignorable=True"
        if field.get("flexibleVersions"):
            options += f', flexible="{field["flexibleVersions"]}"'
        json_name = field["name"][0].lower() + field["name"][1:]
        if camel_case(name) != json_name:
            options += f', name="{json_name}"'
        return options

    def source(self) -> str:
        for message in self.messages:
            self.write_message(message)
        if any("Annotated" in part for part in self.body):
            typing = "from typing import Annotated, ClassVar"
        else:
            typing = "from typing import ClassVar"
        from_primitives = sorted(self.imports & {"Records", "ZERO_UUID"})
        from_schema = sorted(self.imports & {"Api", "Message", "Struct", "Wire"})
        kafka = ZOOKEEPERS_KAFKA if from_zookeeper(self.messages[0]) else KAFKA
        text = f'{BANNER.format(kafka)}"""{module_doc(self.name, self.messages)}"""\n\n{typing}\n\n'
        if "field" in self.imports:
            text += "from msgspec import field\n\n"
        if from_primitives:
            text += f"from blumfeld.wire.primitives import {', '.join(from_primitives)}\n"
        text += f"from blumfeld.wire.schema import {', '.join(from_schema)}\n\n\n"
        return text + "\n\n\n".join(self.body) + "\n" + self._tables()

    def _tables(self) -> str:
        """Which class stands for which record type, where the module holds records."""
        text = ""
        for table, kind, doc in (
            ("RECORD_TYPES", "metadata", "The class of each record type."),
            ("KEY_TYPES", "coordinator-key", "The class of each key, by record type."),
            ("VALUE_TYPES", "coordinator-value", "The class of each value, by the record type of its key."),
        ):
            rows = [m for m in self.messages if m["type"] == kind]
            if rows:
                rows.sort(key=lambda m: m["apiKey"])
                entries = "".join(f"    {m['apiKey']}: {m['name']},\n" for m in rows)
                text += f'\n{table}: dict[int, type[Message]] = {{\n{entries}}}\n"""{doc}"""\n'
        return text


def quoted_docstring(text: str) -> str:
    """A class's docstring, its paragraphs filled to the width of a line."""
    paragraphs = [" ".join(part.split()) for part in text.split("\n\n")]
    filled = [
        textwrap.fill(part, 110, initial_indent="    ", subsequent_indent="    ") for part in paragraphs
    ]
    if len(filled) == 1 and "\n" not in filled[0] and len(filled[0]) <= 104:
        return f'    """{paragraphs[0]}"""'
    first = textwrap.fill('"""' + paragraphs[0], 110, initial_indent="    ", subsequent_indent="    ")
    return "\n\n".join([first, *filled[1:]]) + '\n    """'


def struct_types(fields: list[Json]) -> list[str]:
    """The names of the structs that these fields hold, in order."""
    return [f["type"].removeprefix("[]") for f in fields if f["type"].removeprefix("[]")[0].isupper()]


def message_doc(message: Json) -> str:
    """The line that stands for a docstring where nobody has written one."""
    kind, valid = message["type"], message["validVersions"]
    versions = f"version {valid}" if re.fullmatch(r"\d+", valid) else f"versions {valid}"
    flexible = message["flexibleVersions"]
    first = flexible.removesuffix("+")
    if flexible == "none":
        form = "never flexible"
    elif flexible.endswith("+") and first == re.split(r"[-+]", valid)[0]:
        form = "flexible"
    else:
        form = f"flexible from {first}"
    what = {
        "request": f"API {message.get('apiKey')}, request",
        "response": f"API {message.get('apiKey')}, response",
        "header": "Header",
        "data": "Data",
        "metadata": f"Record type {message.get('apiKey')}",
        "coordinator-key": f"Key of record type {message.get('apiKey')}",
        "coordinator-value": f"Value of record type {message.get('apiKey')}",
    }[kind]
    return f"{what}: {versions}, {form}."


def module_doc(name: str, messages: list[Json]) -> str:
    """What the module holds."""
    if name in MODULE_DOCS:
        return MODULE_DOCS[name]
    request = messages[0]
    api = request["name"].removesuffix("Request").removesuffix("Response")
    return f"{api}, API key {request['apiKey']}: request and response."


def api_table(messages: list[Json]) -> str:
    """The source of wire/api_table.py."""
    requests = sorted((m for m in messages if m["type"] == "request"), key=lambda m: m["apiKey"])
    members, rows = [], []
    others = [
        f'    "{m["name"]}": "{module_of(m)}",\n'
        for m in sorted(messages, key=lambda m: str(m["name"]))
        if m["type"] not in ("request", "response")
    ]
    for m in requests:
        name = m["name"].removesuffix("Request")
        first, _, last = m["validVersions"].partition("-")
        unstable = bool(m.get("latestVersionUnstable"))
        stable = int(last or first) - unstable
        flexible = m["flexibleVersions"].removesuffix("+")
        flexible = "NEVER" if flexible == "none" else flexible
        members.append(f"    {snake_case(name).upper()} = {m['apiKey']}\n")
        listeners = "(" + "".join(f'"{kind}", ' for kind in m["listeners"]) + ")"
        rows.append(
            f'    {m["apiKey"]}: ApiInfo({m["apiKey"]}, "{name}", "{module_of(m)}", {first}, {stable}, {flexible}, '
            f"{listeners}, {unstable}),\n"
        )
    return (
        '"""The table of all APIs, written by tools/convert_messages.py. Use :mod:`blumfeld.wire.api`."""\n\n'
        "from __future__ import annotations\n\nfrom enum import IntEnum\nfrom typing import NamedTuple\n\n"
        'NEVER = 32767\n"""As first flexible version: none is."""\n\n\n'
        "class ApiInfo(NamedTuple):\n"
        '    """The facts of an API in the protocol, whether or not a broker serves it.\n\n'
        "    ``max_version`` is the last stable version; where ``latest_unstable``, the schema knows one more.\n"
        '    ``module`` is below blumfeld.wire.messages.\n    """\n\n'
        "    key: int\n    name: str\n    module: str\n    min_version: int\n    max_version: int\n"
        "    flexible_from: int\n    listeners: tuple[str, ...]\n    latest_unstable: bool\n\n\n"
        'class ApiKey(IntEnum):\n    """The number of each API, by Kafka\'s name for it."""\n\n'
        + "".join(members)
        + "\n\nAPIS: dict[int, ApiInfo] = {\n"
        + "".join(rows)
        + '}\n"""All APIs by their keys."""\n\nOTHER_MESSAGES: dict[str, str] = {\n'
        + "".join(others)
        + '}\n"""The module of each message that is neither request nor response."""\n'
    )


def main() -> int:
    """Write the modules, let ruff format them, say how many."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("protocol", type=Path)
    parser.add_argument("--zookeeper", type=Path, required=True)
    parser.add_argument("--docs", type=Path, default=ROOT / "tools" / "message_docs.toml")
    arguments = parser.parse_args()
    docs = tomllib.loads(arguments.docs.read_text()) if arguments.docs.exists() else {}
    messages = [
        m for m in json.loads(arguments.protocol.read_text())["messages"] if m["validVersions"] != "none"
    ]
    kept = {m["apiKey"] for m in messages if m["type"] == "request"}
    messages += [m for m in json.loads(arguments.zookeeper.read_text()) if m["apiKey"] not in kept]
    modules: dict[str, list[Json]] = defaultdict(list)
    for message in messages:
        modules[module_of(message)].append(message)
    for name, members in modules.items():
        members.sort(key=lambda m: (m["type"] == "response", m["type"] == "coordinator-value"))
        (WIRE / "messages" / f"{name}.py").write_text(Module(name, members, docs).source())
    (WIRE / "api_table.py").write_text(api_table(messages))
    for command in (["check", "--fix", "--quiet", "--select", "I,F401"], ["format", "--quiet"]):
        subprocess.run(
            [sys.executable, "-m", "ruff", *command, str(WIRE / "messages"), str(WIRE / "api_table.py")],
            check=True,
        )
    print(f"{len(messages)} messages in {len(modules)} modules")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
