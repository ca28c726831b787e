"""Tables of the documentation."""

from nvgd._support.tables import markdown


def test_columns_of_words_are_left_aligned_and_names_are_no_elements():
    rows = [("program", "method", "s"), ("<lambda>", "NVGD", "1.2"), ("update", "", "not reached")]
    assert markdown(rows).splitlines() == [
        "| program | method | s |",
        "| --- | --- | ---: |",
        "| &lt;lambda> | NVGD | 1.2 |",
        "| update |  | not reached |",
    ]
