import subprocess
import sys

from intent.models import Outcome
from intent.translate import MAX_CHARACTERS, translate


def test_empty_text_is_refused_by_name(catalogue):
    for text in ("", "   \n"):
        intent = translate(text, catalogue)
        assert (intent.outcome, intent.findings[0].code) == (Outcome.OUT_OF_SCOPE, "text_empty")


def test_a_text_that_is_too_long_is_refused_by_name_and_kept_short(catalogue):
    intent = translate("keep P99 TTFT < 2s " * 200, catalogue)
    assert (intent.outcome, intent.findings[0].code) == (Outcome.OUT_OF_SCOPE, "text_too_long")
    assert len(intent.text) == MAX_CHARACTERS


def test_a_text_of_exactly_the_limit_is_read(catalogue):
    text = "keep P99 TTFT < 2s at peak".ljust(MAX_CHARACTERS)
    assert translate(text, catalogue).outcome is Outcome.OK


def test_the_rules_say_that_they_answered(catalogue):
    translator = translate("run it with tp=2", catalogue).translator
    assert (translator.name, translator.reason) == ("rules", None)


def test_at_most_one_question_is_asked(catalogue):
    intent = translate("latency under 2s, TTFT < 3, GPU utilisation 80%", catalogue)
    assert len(intent.questions) == 1
    assert len(intent.findings) == 3


def test_the_language_is_told(catalogue):
    assert translate("keep P99 TTFT < 2s", catalogue).language == "en"
    chinese = translate("把 P99 TTFT 控制在 2 秒以内", catalogue)
    assert (chinese.language, chinese.outcome) == ("zh", Outcome.OUT_OF_SCOPE)
    assert chinese.findings[0].code == "language_unsupported"


def test_the_rules_load_neither_langchain_nor_pydantic():
    """They cost seconds, and `intentctl parse` has 700 ms."""
    script = (
        "import sys, intent.translate, validator.validate;"
        "slow = {'langchain_openai', 'langchain_core', 'openai', 'pydantic', 'httpx', 'torch', 'yaml'} & set(sys.modules);"
        "assert not slow, slow"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
