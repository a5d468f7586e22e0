"""README and docs: links lead somewhere, lines and paragraphs are short, and what a page names exists."""

import re
import shlex
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import takewhile
from pathlib import Path

import click
import typer

from intentctl.cli import app
from intentctl.status import Exit
from tests.rows import rows

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [*(ROOT / folder / "README.md" for folder in (".", "benchmarks", "tests")), *sorted(DOCS.glob("*.md"))]
LONG = set[str]()
"""Pages that may still have long lines and paragraphs."""
MADE = {"openai-api.md", "faults.md"}
"""Pages with tables that other tests hold to the code, word for word; their rows may be of any length."""
MAX_LINE, MAX_ROW, MAX_PARAGRAPH_LINES = 130, 200, 6
ANYWHERE = {"--help"}


@cache
def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def prose(text: str) -> Iterator[tuple[int, str]]:
    """Numbered lines outside code blocks; a fence counts as a blank line."""
    is_code = False
    for number, line in enumerate(text.splitlines(), 1):
        is_fence = line.lstrip().startswith("```")
        is_code ^= is_fence
        yield number, "" if is_fence or is_code else line


def too_long(text: str, max_row: int | None = MAX_ROW) -> list[str]:
    """Lines, rows of tables (None: of any length) and paragraphs that are too long."""
    found, paragraph = [], 0
    for number, line in enumerate(text.splitlines(), 1):
        most = max_row if line.startswith("|") else MAX_LINE
        if most is not None and len(line) > most:
            found.append(f"{number}: {len(line)} characters")
    for number, line in prose(text):
        begins = not line.strip() or re.match(r"\s*([-*|#>]|\d+\.)\s|\|", line)
        paragraph = 0 if not line.strip() else 1 if begins else paragraph + 1
        if paragraph == MAX_PARAGRAPH_LINES + 1:
            found.append(f"{number}: a paragraph of over {MAX_PARAGRAPH_LINES} lines")
    return found


def anchors(text: str) -> set[str]:
    """Names of the headings of a page, as GitHub makes them."""
    headings = (line.lstrip("#").strip() for _, line in prose(text) if line.startswith("#"))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page: Path, text: str) -> list[str]:
    """Relative links of a page that lead to no file, or to no heading of it."""
    found = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = link.partition("#")
        target = page if not path else page.parent / path
        if re.match(r"[a-z]+:", link):
            continue
        if not target.exists() or (anchor and anchor not in anchors(text if not path else text_of(target))):
            found.append(link)
    return found


def commands() -> dict[tuple[str, ...], set[str]]:
    """Each command of the command line to its options."""
    found: dict[tuple[str, ...], set[str]] = {}

    def walk(command: click.Command, path: tuple[str, ...]) -> None:
        found[path] = {one for parameter in command.params for one in (*parameter.opts, *parameter.secondary_opts)}
        for name, inner in getattr(command, "commands", {}).items():
            if not inner.hidden:
                walk(inner, (*path, name))

    walk(typer.main.get_command(app), ())
    return found


def unknown_commands(text: str) -> list[str]:
    """Commands and options of intentctl in code that the command line does not have."""
    known, found = commands(), []
    code = re.findall(r"`([^`\n]+)`", text) + [
        line.removesuffix("\\")
        for block in re.findall(r"```\w*\n(.*?)```", text, re.DOTALL)
        for line in block.splitlines()
    ]
    for line in code:
        for call in re.findall(r"(?:^|^\$ |\.venv/bin/|\bservice )intentctl (\S.*)", line.partition("  #")[0]):
            found += [f"intentctl {call}: {problem}" for problem in _problems(call, known)]
    return found


def _problems(call: str, known: dict[tuple[str, ...], set[str]]) -> list[str]:
    try:
        words = shlex.split(re.sub(r"[\[\]…]", " ", call))
    except ValueError:
        return ["cannot be read"]
    path: tuple[str, ...] = ()
    for word in takewhile(lambda word: re.fullmatch(r"[a-z]+", word), words):
        if (*path, word) not in known:
            break
        path = (*path, word)
    if not path and re.fullmatch(r"[a-z]+", words[0]):
        return ["no such command"]
    allowed = known[path] | ANYWHERE | (set() if path else known[("plan",)] | known[("apply",)])
    return [f"no option {word}" for word in words if re.match(r"--\w", word) and word.partition("=")[0] not in allowed]


def _first_cells(text: str) -> list[str]:
    """The first cells of all rows of tables."""
    return [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| ")]


def table(text: str, heading: str) -> list[list[str]]:
    """Cells of the rows of the first table under a heading."""
    lines = iter(text.partition(f"\n{heading}\n")[2].splitlines())
    for line in lines:
        if line.startswith("|--"):
            break
    return [
        [cell.strip() for cell in row.strip("|").split(" | ")]
        for row in takewhile(lambda row: row.startswith("|"), lines)
    ]


@rows("page", [page for page in PAGES if page.name not in LONG], ids=str)
def test_lines_and_paragraphs_are_short(page):
    assert too_long(text_of(page), None if page.name in MADE else MAX_ROW) == []


@rows("page", [*PAGES, ROOT / "CONTRIBUTING.md", *sorted((DOCS / "decisions").glob("*.md"))], ids=str)
def test_links_lead_somewhere(page):
    assert broken_links(page, text_of(page)) == []


@rows("page", PAGES, ids=str)
def test_modules_results_and_commands_that_a_page_names_exist(page):
    text = text_of(page)
    for module in re.findall(r"python -m ((?:benchmarks|tests)(?:\.[a-z_]+)+)\b", text):
        path = ROOT / module.replace(".", "/")
        assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file(), module
    for file in re.findall(r"\bresults/([a-z0-9-]+\.json)", text):
        assert (ROOT / "benchmarks" / "results" / file).is_file(), file
    assert unknown_commands(text) == []


def test_every_command_and_exit_code_is_listed():
    page = text_of(DOCS / "commands.md")
    named = re.findall(r"`intentctl ([a-z]+(?: [a-z]+)?)", "\n".join(_first_cells(page)))
    tree = commands()
    ends = {path for path in tree if path and not any(len(one) > len(path) and one[0] == path[0] for one in tree)}
    assert {tuple(name.split()) if tuple(name.split()) in tree else (name.split()[0],) for name in named} == ends
    codes = [int(code) for code, _ in table(page, "## Exit codes") if code != "130"]
    assert codes == sorted(Exit)


def test_the_glossary_has_each_noun_once_with_a_file_that_exists():
    row = r"^\| \*\*(.+?)\*\* \| .+ \| `(.+?)`.* \|$"
    listed = re.findall(row, text_of(DOCS / "glossary.md"), re.MULTILINE)
    assert len(listed) > 20
    assert [noun for noun, count in Counter(noun for noun, _ in listed).items() if count > 1] == []
    assert [path for _, path in listed if not (ROOT / path).exists()] == []


@rows(
    ("text", "expected"),
    [
        ("a" * 131, "1: 131 characters"),
        ("```\n" + "a" * 131 + "\n```", "2: 131 characters"),
        ("| " + "a" * 200 + " |", "1: 204 characters"),
        ("a\n" * 7, "7: a paragraph of over 6 lines"),
        ("- a\n" + "  a\n" * 6, "7: a paragraph of over 6 lines"),
    ],
)
def test_what_is_too_long_is_seen(text, expected):
    assert too_long(text) == [expected]


@rows(
    "text",
    [
        "a\n" * 6 + "\n" + "a\n" * 6,
        "- a\n" * 9,
        "| a |\n" * 9,
        "```\n" + "a\n" * 9 + "```",
        "a\n" * 6 + "```\na\n```\na",
    ],
)
def test_what_is_short_passes(text):
    assert too_long(text) == []


@rows(
    ("text", "problem"),
    [
        ("`intentctl frobnicate`", "no such command"),
        ("`intentctl apply PLAN --nwo`", "no option --nwo"),
        ("```\n.venv/bin/intentctl keys create ada --rolle admin\n```", "no option --rolle"),
        ('`intentctl "keep it" --yess`', "no option --yess"),
    ],
)
def test_an_unknown_command_is_seen(text, problem):
    (found,) = unknown_commands(text)
    assert found.endswith(problem)


def test_a_broken_link_is_seen(tmp_path):
    (tmp_path / "other.md").write_text("# One `thing`\n", encoding="utf-8")
    text = "[a](other.md#one-thing) [b](other.md#two) [c](none.md) [d](#here) [e](https://example.org)\n## Here\n"
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    assert broken_links(page, text) == ["other.md#two", "none.md"]
