"""Chat templates render as transformers renders them, over tokenizers in the forms of well-known models."""

import json
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from runtime import grammar
from runtime.errors import CheckpointError, RequestError
from runtime.tokenizer import Tokenizer
from tests.rows import rows

pytestmark = pytest.mark.slow


MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": 'héllo <b>"you"</b> & 你好 🙂\n  two'},
    {
        "role": "assistant",
        "content": "hi ",
        "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {"b": 1, "a": [1.5, None, True]}}}],
    },
    {"role": "tool", "name": "f", "content": "{}", "tool_call_id": "x1"},
    {"role": "user", "content": [{"type": "text", "text": "part"}, {"type": "text", "text": "two"}]},
]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "f",
            "description": "zé <x>",
            "parameters": {
                "type": "object",
                "properties": {"b": {"type": "integer"}, "a": {"enum": ["é"]}},
                "required": ["b"],
            },
        },
    },
]
FEATURES = (
    (Path(__file__).parents[1] / "data" / "chat_templates.txt").read_text(encoding="utf-8")[:-1].split("\n----\n")
)
"""Templates with something of the language each, between lines of four hyphens."""


RECORDED = Path(__file__).parents[1] / "data" / "chat_templates.json"
"""What transformers 5.19 writes of each template in each form, without tools and with them; null where it refuses."""
CHARACTERS = sorted(pre_tokenizers.ByteLevel.alphabet())
"""Of byte-level vocabularies: a token each."""


@dataclass(frozen=True)
class Form:
    """What a family of models has in its files."""

    config: Mapping[str, Any]
    special: tuple[str, ...]
    text: tuple[str, ...] = ()
    """Tokens that were added and are text."""


def added(content: str) -> dict[str, Any]:
    return {
        "__type": "AddedToken",
        "content": content,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "single_word": False,
        "special": True,
    }


FORMS = {
    "llama-3": Form({"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"}, ("<|begin_of_text|>", "<|eot_id|>")),
    "qwen": Form(
        {"bos_token": None, "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"},
        ("<|im_end|>", "<|endoftext|>"),
        ("<tool_call>", "</tool_call>", "<think>"),
    ),
    "mistral-v3": Form(
        {"bos_token": added("<s>"), "eos_token": added("</s>"), "unk_token": added("<unk>")}, ("<s>", "</s>", "<unk>")
    ),
    "tekken": Form({"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}, ("<s>", "</s>", "<pad>", "[INST]")),
    "gemma": Form(
        {"bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>", "unk_token": "<unk>"},
        ("<bos>", "<eos>", "<pad>", "<unk>"),
    ),
    "phi": Form(
        {
            "bos_token": "<|endoftext|>",
            "eos_token": "<|end|>",
            "unk_token": "<|endoftext|>",
            "pad_token": "<|endoftext|>",
        },
        ("<|endoftext|>", "<|end|>"),
    ),
    "hermes": Form({"bos_token": "<s>", "eos_token": "<|im_end|>"}, ("<s>", "<|im_end|>"), ("<tool_call>",)),
    "deepseek": Form(
        {
            "bos_token": added("<｜begin▁of▁sentence｜>"),
            "eos_token": added("<｜end▁of▁sentence｜>"),
            "pad_token": added("<｜end▁of▁sentence｜>"),
        },
        ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"),
    ),
    "smollm2": Form(
        {
            "bos_token": "<|im_start|>",
            "eos_token": "<|im_end|>",
            "unk_token": "<|endoftext|>",
            "pad_token": "<|im_end|>",
        },
        ("<|im_start|>", "<|im_end|>", "<|endoftext|>"),
    ),
}


def written(folder: Path, form: Form, template: object) -> Path:
    """A folder of a tokenizer in this form."""
    folder.mkdir(parents=True, exist_ok=True)
    whole = tokenizers.Tokenizer(models.BPE({character: n for n, character in enumerate(CHARACTERS)}, []))
    whole.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    whole.decoder = decoders.ByteLevel()
    whole.add_special_tokens(list(form.special))
    whole.add_tokens(list(form.text))
    whole.save(str(folder / "tokenizer.json"))
    config = {**form.config, "tokenizer_class": "PreTrainedTokenizerFast", "chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


THEIRS = """
import json, sys
import transformers

def rendered(tokenizer, messages, tools):
    try:
        return tokenizer.apply_chat_template(messages, tools=tools, tokenize=False, add_generation_prompt=True)
    except Exception:  # jinja's, and Python's own
        return None

asked = json.load(sys.stdin)
tokenizers = [transformers.PreTrainedTokenizerFast.from_pretrained(folder) for folder in asked["folders"]]
found = [[rendered(one, asked["messages"], tools) for tools in (None, asked["tools"])] for one in tokenizers]
json.dump(found, sys.stdout)
"""
"""In a process of its own: what transformers starts is not to be there where other tests fork."""


def theirs(folders: Sequence[Path]) -> list[list[str | None]]:
    """What transformers writes without tools and with them; None where it refuses."""
    asked = {"folders": [str(folder) for folder in folders], "messages": MESSAGES, "tools": TOOLS}
    done = subprocess.run(
        [sys.executable, "-c", THEIRS], input=json.dumps(asked), capture_output=True, text=True, check=True
    )
    found: list[list[str | None]] = json.loads(done.stdout)
    return found


def ours(folder: Path, tools: object) -> str | None:
    try:
        return Tokenizer.load(folder).rendered(MESSAGES, tools or [])
    except (RequestError, CheckpointError):
        return None


def cases(folder: Path, name: str) -> list[Path]:
    """A folder for each template in a form."""
    return [written(folder / f"{name}-{n}", FORMS[name], template) for n, template in enumerate(FEATURES)]


FEW = ("qwen", "mistral-v3")


@pytest.mark.parametrize("names", [FEW, pytest.param([*FORMS], marks=pytest.mark.exhaustive)], ids=["few", "all"])
def test_what_templates_use_is_what_transformers_gives_them(tmp_path, names):
    assert len(FEATURES) >= 60
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    for name in names:
        written_here = [[ours(folder, tools) for tools in (None, TOOLS)] for folder in cases(tmp_path, name)]
        assert written_here == recorded[name], name


@pytest.mark.exhaustive
def test_what_was_recorded_is_what_transformers_writes(tmp_path):
    """``python -m tests.runtime.test_chat_templates`` records it anew."""
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    assert {name: theirs(cases(tmp_path, name)) for name in FORMS} == recorded


@rows("files", [False, True])
def test_a_template_for_tools_is_used_where_tools_are_sent(tmp_path, files):
    named = {"default": "plain", "tool_use": "{{ tools | length }} tools"}
    folder = tmp_path / str(files)
    if files:
        written(folder, FORMS["hermes"], None)
        (folder / "chat_template.jinja").write_text(named["default"])
        (folder / "additional_chat_templates").mkdir()
        (folder / "additional_chat_templates" / "tool_use.jinja").write_text(named["tool_use"])
    else:
        written(folder, FORMS["hermes"], [{"name": name, "template": text} for name, text in named.items()])
    assert [ours(folder, tools) for tools in (None, TOOLS)] == ["plain", "1 tools"]


def test_a_template_that_never_ends_is_refused_at_the_start(tmp_path, monkeypatch):
    monkeypatch.setattr("runtime.tokenizer.PROBE_S", 0.5)
    endless = "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}"
    with pytest.raises(CheckpointError, match=r"qwen: its chat template takes over 0\.5 s for one message"):
        Tokenizer.load(written(tmp_path / "qwen", FORMS["qwen"], endless))
    assert not [thread for thread in threading.enumerate() if "run" in thread.name], "it was ended"


@rows(
    ("config", "said"),
    [
        (
            {"eos_token": "<gone>"},
            r"tokenizer_config\.json: eos_token is '<gone>', which is no token of tokenizer\.json",
        ),
        ({"bos_token": added("<gone>")}, r"bos_token is '<gone>'"),
    ],
)
def test_files_that_disagree_are_named(tmp_path, config, said):
    form = FORMS["llama-3"]
    folder = written(tmp_path / next(iter(config)), Form({**form.config, **config}, form.special), "x")
    with pytest.raises(CheckpointError, match=said):
        Tokenizer.load(folder)


def test_a_model_with_fewer_tokens_than_its_tokenizer_is_named(tmp_path):
    folder = written(tmp_path / "small", FORMS["llama-3"], "x")
    (folder / "config.json").write_text(json.dumps({"vocab_size": 257}))
    with pytest.raises(CheckpointError, match=r"config\.json: vocab_size is 257, but tokenizer\.json has a token 257"):
        Tokenizer.load(folder)


@rows("name", [*FORMS])
def test_a_grammar_may_ask_for_added_tokens_and_for_the_same_text_spelled_out(tmp_path, name):
    form = FORMS[name]
    tokenizer = Tokenizer.load(written(tmp_path / name, form, "x"))
    vocabulary = grammar.Vocabulary(tokenizer, tokenizer.size)
    for text in ("<tool_call>", "<think>", "plain"):
        wanted = grammar.choice([f"{text}\n"])
        grammar.check(wanted, vocabulary)
        for ids in (
            tokenizer.encode(f"{text}\n"),
            [number for character in f"{text}\n" for number in tokenizer.encode(character)],
        ):
            matcher = grammar.Matcher(wanted, vocabulary, ids)
            assert (matcher.error, matcher.is_whole) == ("", True), (text, ids)
    never = grammar.Matcher(grammar.choice([form.special[0]]), vocabulary)
    assert not never.advance([tokenizer.special_ids[0]]), "a special token is no text"


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        found = {name: theirs(cases(Path(place), name)) for name in FORMS}
        RECORDED.write_text(json.dumps(found, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")
