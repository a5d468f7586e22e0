from service.openai.requests import ChatRequest, CompletionRequest
from tests.service.openai_page import PAGE, made


def test_the_page_is_made_of_the_declaration():
    text = PAGE.read_text(encoding="utf-8")
    assert made(text) == text, "run python -m tests.service.openai_page"


def test_every_parameter_has_a_row_that_says_what_it_means():
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in PAGE.read_text(encoding="utf-8").splitlines()
        if line.startswith("| `")
    ]
    names = {row[0].strip("`") for row in rows}

    assert names >= set(ChatRequest.model_fields) | set(CompletionRequest.model_fields)
    assert [row for row in rows if not row[-1]] == []
    assert {state for row in rows for state in row[1:3]} == {"served", "without effect", "refused"}
