"""What ``blumfeld plan`` prints, with the fakes' parts."""

from __future__ import annotations

from blumfeld import __version__, spi
from blumfeld.kernel.description.document import decode_document, encode_document
from blumfeld.kernel.description.text import document_text
from tests.kernel.fakes import described, document, plan_of

MADE_OF = f"Blumfeld {__version__}, spi {spi.VERSION}"
TEXT = f"""\
node 1 (broker, controller), data in data, from m.toml
{MADE_OF}

plug-ins
  network      net_fake          unknown  paper
  storage      storage_fake      unknown
  consensus    consensus_fake    unknown
  replication  replication_fake  unknown
  groups       groups_fake       unknown

listeners
  PLAINTEXT   broker      127.0.0.1:9092            brokers come in by it
  OUTSIDE     broker      0.0.0.0:9093              advertised as kafka.example:9093
  ANY         broker      127.0.0.1, any free port
  CONTROLLER  controller  [::1]:9094

APIs on broker listeners
    0  Produce      0–13
   18  ApiVersions  0–4

APIs on controller listeners
   18  ApiVersions  0–4

an ack means
  acks=0    nothing
  acks=1    written: what storage promises
  acks=all  what replication promises

features, their levels, and the level of a new cluster
  eligible.leader.replicas.version  0–1  1
  metadata.version                  30   30
  paper.version                     0–1  1

configuration, other than Kafka's defaults
  auto.create.topics.enable  false
  log.segment.bytes          1048576

this build does not
  compaction    a topic with cleanup.policy=compact keeps every record: this storage does not compact
  security      every client is User:ANONYMOUS and may do everything, on PLAINTEXT only
  transactions  a transactional.id gets TRANSACTIONAL_ID_AUTHORIZATION_FAILED
  APIs          """

CONFIG = """
[config]
"log.segment.bytes" = 1048576
"auto.create.topics.enable" = false
"""

LISTENERS = (
    'network.listeners=[{name="PLAINTEXT", bind="127.0.0.1:9092"}, '
    '{name="OUTSIDE", bind="0.0.0.0:9093", advertised="kafka.example:9093"}, '
    '{name="ANY", bind="127.0.0.1:0"}, {name="CONTROLLER", kind="controller", bind="[::1]:9094"}]'
)


def test_the_plan_of_a_manifest() -> None:
    text = described(plan_of(LISTENERS, text=CONFIG))
    fixed, _, missing = text.partition("  APIs          ")
    assert fixed + "  APIs          " == TEXT
    assert missing.startswith("Fetch, ListOffsets, Metadata, ")
    assert "Produce" not in missing.replace(",", " ").split()
    assert max(map(len, text.splitlines())) < 120


def test_several_log_directories_are_said_with_what_a_failure_takes() -> None:
    plan = plan_of('node.data_dirs=["/disk1", "/d2"]', "storage.plugin=storages_fake")
    assert described(plan).splitlines()[:6] == [
        "node 1 (broker, controller), data in /disk1 and /d2, from m.toml",
        MADE_OF,
        "",
        "log directories",
        "  /disk1  the cluster's metadata, and partitions: the node stops if it fails",
        "  /d2     partitions: only they go offline if it fails",
    ]


def test_a_controller_alone_has_no_acks() -> None:
    text = described(plan_of('node.roles=["controller"]'))
    assert text.startswith("node 1 (controller), data in data")
    assert "an ack means" not in text
    assert "transactions" not in text
    assert "security  every client is User:ANONYMOUS" in text


def test_a_document_alone_has_the_text_of_its_build_without_a_place() -> None:
    plan = plan_of(LISTENERS, text=CONFIG)
    alone = document_text(decode_document(encode_document(document(plan))), origin="from plan.json")
    assert alone.startswith(f"broker, controller, from plan.json\n{MADE_OF}\n")
    whole = described(plan).split("\n\n")
    beside = [part for part in whole[2:] if not part.startswith("listeners")]
    assert alone.split("\n\n")[2:] == beside
