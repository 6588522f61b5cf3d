"""What Kafka's console tools print is read cell by cell."""

from __future__ import annotations

from campaigns.clients.checks.console_tools import rows

DESCRIBED = """
GROUP           TOPIC           PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG
g               t               0          1               4               3
g               t               1          -               4               -

GROUP           COORDINATOR (ID)          ASSIGNMENT-STRATEGY  STATE                #MEMBERS
g               127.0.0.1:9092  (1)       uniform              Stable               2
"""


def test_each_line_is_read_by_the_titles_above_it() -> None:
    first, second, state = rows(DESCRIBED)
    assert (first["PARTITION"], first["LAG"]) == ("0", "3")
    assert second["CURRENT-OFFSET"] == "-"
    assert (state["COORDINATOR(ID)"], state["STATE"], state["#MEMBERS"]) == (
        "127.0.0.1:9092(1)",
        "Stable",
        "2",
    )


def test_what_is_no_table_is_passed_over() -> None:
    assert rows("\nConsumer group 'g' has no active members.\n\nError: something\n") == []


def test_a_line_with_a_cell_too_few_is_no_row() -> None:
    assert rows("GROUP TYPE STATE\ng Classic\n") == []
