"""Words that change any wish and that no goal can hold: who leaves them out has misread.

Each is put before or behind an utterance that is clear without it. The answer must not be ``ok``.
"""

import random
from collections.abc import Sequence

from benchmarks.words.utterances import Utterance
from intent.models import Outcome

BEHIND = {
    "en": (
        " on the staging cluster", " in eu-west", " for user bob", " unless the queue is full", " if traffic doubles",
        " most of the time", " once the migration is done", " except on holidays", " as long as costs allow",
        " only for streaming requests", " for prompts over 4k tokens", " every other week", " during the launch",
        " with mistral", " for gold users", " per node", " when it rains", ", but not in Frankfurt", " was the old target",
    ),
    "zh": (
        "，测试环境", "，华东机房", "，除非集群满了", "，如果流量翻倍的话", "，大部分时候", "，迁移完成后", "，节假日除外",
        "，只要成本允许",
        "，仅限流式请求", "，针对长文本请求", "，黄金用户", "，每个节点", "，并发50的时候",
    ),
}  # fmt: skip
BEFORE = {
    "en": (
        "unless idle, ", "in staging, ", "only for long prompts: ", "assuming low traffic, ", "we used to have ",
        "the old target was ", "stop enforcing: ", "remove: ", "cancel: ", "if the queue is empty, ", "for gold users, ",
    ),
    "zh": ("除非空闲，", "测试环境", "如果流量不大，", "长文本请求", "不再要求", "以前是", "取消：", "黄金用户", "华东机房"),
}  # fmt: skip


def clear(utterances: Sequence[Utterance]) -> list[Utterance]:
    """Those that can carry a qualifier: accepted as they stand, and of one language."""
    return [
        one
        for one in utterances
        if one.outcome is Outcome.OK and not one.also and not one.findings and one.language in BEHIND
    ]


def qualified(chance: random.Random, utterances: Sequence[Utterance]) -> str:
    """One of them with one qualifier."""
    one = chance.choice(utterances)
    text = one.text.rstrip("。.!！?？ ")
    if chance.random() < 0.6:
        return text + chance.choice(BEHIND[one.language])
    return chance.choice(BEFORE[one.language]) + text
