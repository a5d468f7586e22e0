"""What the console says is said in Chinese, too."""

import re
from importlib import resources

import yaml

from intentctl.console import answers, pages, slash
from intentctl.console.words import language_of, sayer
from tests.rows import rows

ROOM = resources.files("intentctl.console")
WORDS = re.compile(r"""_\(\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)')""")


def said():
    """Every text in a template, and every text of ours that a template is given."""
    folder = ROOM.joinpath("templates")
    files = [*folder.iterdir(), *folder.joinpath("parts").iterdir()]
    found = {a or b for file in files if file.is_file() for a, b in WORDS.findall(file.read_text(encoding="utf-8"))}
    return sorted({*found, *answers.SUGGESTIONS, *pages.KINDS, *(one.shows for one in slash.COMMANDS)})


CHINESE = yaml.safe_load(ROOM.joinpath("chinese.yaml").read_text(encoding="utf-8"))


def test_there_are_words_and_what_is_not_known_stays_english():
    assert len(said()) > 200
    assert sayer("zh")("no such words") == "no such words"
    assert sayer("zh")("by {who}", who="{0.__class__}") == "由 {0.__class__}"


@rows("words", said())
def test_it_is_said_in_chinese_with_the_same_slots(words):
    assert re.search(r"[\u4e00-\u9fff]|Token", CHINESE[words])
    assert set(re.findall(r"{\w+}", CHINESE[words])) == set(re.findall(r"{\w+}", words))


@rows(
    ("chosen", "accepted", "language"),
    [("zh", "en", "zh"), (None, "de,zh-CN;q=0.9,en", "zh"), (None, "en-US,zh", "en"), ("xx", "", "en")],
)
def test_the_language_is_the_one_chosen_or_the_first_accepted(chosen, accepted, language):
    assert language_of(chosen, accepted) == language
