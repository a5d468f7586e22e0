"""The tokenizer of a checkpoint folder: what is read from where, and clear errors for what is wrong."""

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, processors

from runtime.errors import CheckpointError, RequestError
from runtime.tokenizer import Tokenizer
from tests.rows import rows
from tests.service.scripted import HERMES, PLAIN, character_tokenizer

TEMPLATE = (
    "{% for message in messages %}{{ message['content'] }}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}:{% endif %}"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkpoint folder with a tokenizer of one token per letter, and an end token."""
    letters = tokenizers.Tokenizer(models.WordLevel({"<eos>": 0, "a": 1, "b": 2, ":": 3}, unk_token="<eos>"))
    letters.pre_tokenizer = pre_tokenizers.Split(tokenizers.Regex("."), behavior="isolated")
    letters.decoder = decoders.Fuse()
    letters.add_special_tokens(["<eos>"])
    letters.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def write(folder: Path, name: str, content: Any) -> None:
    (folder / name).write_text(json.dumps(content), encoding="utf-8")


def test_text_goes_to_ids_and_back_without_special_tokens(folder):
    tokenizer = Tokenizer.load(folder)
    assert tokenizer.encode("ab") == (1, 2)
    assert tokenizer.decode([1, 2, 0]) == "ab"
    assert tokenizer.token_bytes(0) == b"<eos>"


def test_a_byte_level_token_has_its_own_bytes():
    """A token may be a part of a character; its text alone would be a replacement character."""
    plain = tokenizers.Tokenizer(
        models.BPE({character: place for place, character in enumerate(pre_tokenizers.ByteLevel.alphabet())}, [])
    )
    plain.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    plain.decoder = decoders.ByteLevel()
    plain.add_special_tokens(["<ü>"])
    tokenizer = Tokenizer(plain)
    text = "a € b\n\x00" + "".join(map(chr, range(256)))

    token_ids = tokenizer.encode(text)
    assert b"".join(map(tokenizer.token_bytes, token_ids)) == text.encode()
    assert tokenizer.token_bytes(token_ids[2]) == b"\xe2"
    assert tokenizer.token_bytes(256) == "<ü>".encode()


def test_a_sentencepiece_token_has_its_blank_and_its_byte():
    vocabulary = {"\u2581a": 0, "b": 1, "<0xE2>": 2, "<0x0A>": 3}
    plain = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token="b"))
    plain.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    assert [*map(Tokenizer(plain).token_bytes, range(4))] == [b" a", b"b", b"\xe2", b"\n"]


def test_a_word_level_token_is_what_it_is():
    plain = tokenizers.Tokenizer(models.WordLevel({"<0x0A>": 0, "ü": 1}, unk_token="ü"))
    plain.decoder = decoders.Fuse()
    assert [*map(Tokenizer(plain).token_bytes, range(2))] == [b"<0x0A>", "ü".encode()]


@rows(
    ("template", "why"),
    [
        (HERMES, ""),
        (
            HERMES.replace("message.content }}", 'message.content }}<tool_call>{"name": <name>}</tool_call>'),
            "",
        ),
        (PLAIN, "no place for tools"),
        (HERMES.replace("<tool_call>", "[TOOL_CALLS]"), "another form"),
        (HERMES.replace('{"name": "', "<function="), "another form"),
        (HERMES.replace("arguments | tojson", "arguments | string | tojson"), "another form"),
        ("{{ messages.append(1) }}", "refuses"),
        (None, "no chat template"),
    ],
)
def test_why_a_model_cannot_be_offered_tools(template, why):
    plain = character_tokenizer()._tokenizer
    found = Tokenizer(plain, chat_template=template).why_no_tools
    assert why in found if why else found == ""


def test_markers_that_the_tokenizer_hides_are_another_form():
    plain = character_tokenizer()._tokenizer
    plain.add_special_tokens(["<tool_call>"])
    assert "another form" in Tokenizer(plain, chat_template=HERMES).why_no_tools


def test_tools_are_handed_to_the_template(folder):
    tokenizer = character_tokenizer(HERMES)
    token_ids = tokenizer.encode_chat([{"role": "user", "content": "hi"}], [{"name": "f"}])
    assert tokenizer.decode(token_ids) == 'You may call {"name": "f"}user: hi\nassistant:'


def test_the_usual_length_of_an_answer_comes_from_the_generation_config(folder):
    assert Tokenizer.load(folder).max_new_tokens is None
    write(folder, "generation_config.json", {"max_new_tokens": 77})
    assert Tokenizer.load(folder).max_new_tokens == 77


def test_half_of_a_character_is_the_requests_error(folder):
    with pytest.raises(RequestError, match="half of a character"):
        Tokenizer.load(folder).encode("a\ud800b")


def test_end_tokens_are_those_of_all_files(folder):
    assert Tokenizer.load(folder).eos_ids == ()
    write(folder, "config.json", {"eos_token_id": 7})
    assert Tokenizer.load(folder).eos_ids == (7,)
    write(folder, "generation_config.json", {"eos_token_id": [0, 3]})
    assert Tokenizer.load(folder).eos_ids == (0, 3, 7)
    write(folder, "tokenizer_config.json", {"eos_token": ":"})
    write(folder, "generation_config.json", {"eos_token_id": 0})
    assert Tokenizer.load(folder).eos_ids == (0, 7, 3)


@rows("eos", ["<eos>", {"content": "<eos>", "lstrip": False}])
def test_a_chat_is_rendered_by_the_template_with_its_special_tokens(folder, eos):
    write(folder, "tokenizer_config.json", {"chat_template": TEMPLATE, "eos_token": eos})
    assert Tokenizer.load(folder).encode_chat([{"role": "user", "content": "ab"}]) == (1, 2, 0, 3)


def test_what_begins_every_text_stands_once_before_a_chat_whose_template_writes_it(folder):
    whole = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    whole.post_processor = processors.TemplateProcessing("<eos> $A", special_tokens=[("<eos>", 0)])
    whole.save(str(folder / "tokenizer.json"))
    write(folder, "tokenizer_config.json", {"chat_template": f"{{{{ eos_token }}}}{PLAIN}", "eos_token": "<eos>"})
    tokenizer = Tokenizer.load(folder)
    assert tokenizer.encode("a") == (0, 1)
    assert tokenizer.encode_chat([{"role": "user", "content": "a"}]) == (0, 1)


def test_the_template_file_goes_before_the_configuration_of_whose_templates_the_default_counts(folder):
    with pytest.raises(RequestError, match="no chat template"):
        Tokenizer.load(folder).encode_chat([])
    named = [{"name": "tool_use", "template": "a"}, {"name": "default", "template": "b"}]
    write(folder, "tokenizer_config.json", {"chat_template": named})
    assert Tokenizer.load(folder).encode_chat([]) == (2,)
    (folder / "chat_template.jinja").write_text("a", encoding="utf-8")
    assert Tokenizer.load(folder).encode_chat([]) == (1,)


@rows(
    "template",
    [
        "{{ raise_exception('roles must alternate') }}",
        "{{ messages[0].content.missing.deeper }}",
        "{{ messages.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
    ],
)
def test_a_template_that_refuses_or_reaches_out_is_the_requests_error(folder, template):
    write(folder, "tokenizer_config.json", {"chat_template": template})
    with pytest.raises(RequestError, match="chat template refuses"):
        Tokenizer.load(folder).encode_chat([{"role": "user", "content": "ab"}])


def test_a_folder_without_a_tokenizer_is_named(tmp_path):
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: no such file"):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("tokenizer.json", "{", "not a tokenizer"),
        ("tokenizer_config.json", "{", "not JSON"),
        ("tokenizer_config.json", "[]", "should hold a JSON object"),
        ("chat_template.jinja", "{% for %}", "chat template cannot be read"),
    ],
)
def test_a_broken_file_is_named(folder, name, content, message):
    (folder / name).write_text(content, encoding="utf-8")
    with pytest.raises(CheckpointError, match=message):
        Tokenizer.load(folder)
