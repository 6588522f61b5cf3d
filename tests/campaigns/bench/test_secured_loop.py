"""The campaign of secured loops: where it looks for an error in an answer, and what its page gets."""

from __future__ import annotations

from blumfeld.wire.codec import encode_parts
from blumfeld.wire.headers import response_header
from blumfeld.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from blumfeld.wire.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from campaigns.bench.secured_loop.__main__ import ERROR_AT, Sample, table_of
from campaigns.figures import BEGIN, END, put_between
from campaigns.raw_requests import FETCH_VERSION, PRODUCE_VERSION

CODE = 0x7A7B
SIZE_BYTES = 4


def frame(answer: ProduceResponse | FetchResponse, version: int) -> bytes:
    parts = encode_parts(answer, version, response_header(1, True))
    return bytes(SIZE_BYTES) + b"".join(bytes(part) for part in parts)  # type: ignore[arg-type]


def test_the_error_of_an_answer_lies_where_the_load_generator_looks() -> None:
    produced = ProduceResponse(
        responses=[
            TopicProduceResponse(
                name="t", partition_responses=[PartitionProduceResponse(index=0, error_code=CODE)]
            )
        ]
    )
    fetched = FetchResponse(
        responses=[
            FetchableTopicResponse(topic="f", partitions=[PartitionData(partition_index=0, error_code=CODE)])
        ]
    )
    places = {
        "produce": frame(produced, PRODUCE_VERSION).index(CODE.to_bytes(2)),
        "fetch": frame(fetched, FETCH_VERSION).index(CODE.to_bytes(2)),
    }
    assert places == ERROR_AT


def test_a_row_has_the_medians_of_both_and_their_ratios() -> None:
    samples = [
        Sample(server, "TLS", "fetch", 16, rate, 500.0, p99_us, 20.0)
        for server, rate, p99_us in (("ours", 2_000, 1_000), ("ours", 4_000, 3_000), ("Kafka", 1_500, 4_000))
    ]
    assert table_of(samples).splitlines()[-1] == (
        "| TLS | fetch | 16 | 3,000 | 1,500 | 2.00 | 0.50 | 0.50 | 2.00 | 4.00 | 0.50 | 20 | 20 |"
    )


def test_a_page_gets_new_figures_between_its_marks() -> None:
    page = f"before\n{BEGIN}\nold\n{END}\nafter"
    assert put_between(page, "new") == f"before\n{BEGIN}\nnew\n{END}\nafter"
