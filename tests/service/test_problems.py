"""Problems: every code has a status and a line in the docs that says what to do."""

import re
from pathlib import Path

from service.documents.problems import Code

PAGE = Path(__file__).parents[2] / "docs" / "problems.md"


def test_every_code_is_in_the_docs_with_its_status():
    rows = re.findall(r"^\| `(\w+)` \| ([\d, ]+) \| .+ \| .+ \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    listed = {code: {int(status) for status in statuses.split(", ")} for code, statuses in rows}
    assert len(listed) == len(rows)
    assert set(listed) == {code.value for code in Code}
    assert all(Code(code).status in statuses for code, statuses in listed.items())
