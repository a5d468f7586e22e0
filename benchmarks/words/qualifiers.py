"""Words that change any wish and that no goal can hold: who leaves them out has misread.

Each is put before or behind an utterance that is clear without it. The answer must not be ``ok``.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.words.utterances import Utterance
from intent.models import Catalogue, Outcome
from intent.rules import read

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


UNSEEN_BEHIND = {
    "en": (
        " unless the KV cache is nearly exhausted",
        ", except for tenants still on the trial plan",
        " only in the Dublin region",
        " on the canary deployment",
        ", provided the nightly backup isn't running",
        " as long as the prefix cache is warm",
        " every other week",
        " for Globex",
        ", but not for anything that comes through the old gateway",
        " until the migration is finished",
        " once the new load balancer is live",
        " on most days",
        ", or at least something close to that",
        ", actually no, scratch that one",
        " for each API key separately",
        " with LoRA adapters loaded",
        " while we're draining a node",
        ", assuming finance signs off",
        " or whatever the contract ends up saying",
        ", though we stopped doing that last quarter",
        " whenever the upstream router fails over",
        " for the first few minutes after a restart",
    ),
    "zh": (
        "，除非显存快用光了",
        "，前提是没有节点掉线",
        "，仅限新加坡机房",
        "，试用版用户除外",
        "，每隔一周执行一次",
        "，等新网关上线之后再生效",
        "，压测期间不算",
        "，大概差不多就行",
        "，或者按合同里写的来",
        "，算了，这条取消",
        "，不过那是以前的要求，现在不执行了",
        "，每个会话单独算",
        "，只要财务那边同意",
        "，如果上游限流了的话",
        "，只对星辰科技这家客户有效",
    ),
}
"""The same, by somebody who had seen the conventions and neither the code nor the lists above."""
UNSEEN_BEFORE = {
    "en": (
        "Only if the on-call engineer agrees, ",
        "When the queue has been backing up for a while, ",
        "Unless one of the nodes is down, ",
        "In the Singapore datacentre, ",
        "For customers on the Platinum plan, ",
        "More often than not, ",
        "After we've moved to the new cluster, ",
        "During the investor roadshow, ",
        "Except where the SLA says otherwise, ",
        "Please stop enforcing the following: ",
        "This used to be the rule: ",
        "Roughly speaking, ",
        "On a per-session basis, ",
    ),
    "zh": (
        "在预发环境里，",
        "如果模型刚刚重新加载过，",
        "除非值班同事另有通知，",
        "对白金会员，",
        "版本切换期间，",
        "新机柜到货之后，",
        "只有开了推测解码的时候，",
        "以下这条不再执行：",
        "以前我们的规定是：",
        "大部分时候，",
    ),
}


@dataclass(frozen=True, slots=True)
class Carrier:
    """An utterance that can carry a qualifier, and at which ends its wish stands."""

    utterance: Utterance
    begins: bool
    ends: bool


def clear(utterances: Sequence[Utterance], catalogue: Catalogue) -> list[Carrier]:
    """Those that can carry a qualifier: accepted as they stand, of one language, with a wish at an end.

    Behind a story or a courtesy a qualifier qualifies that, and not the wish.
    """
    plain = (
        one
        for one in utterances
        if one.outcome is Outcome.OK and not one.also and not one.findings and one.language in BEHIND
    )
    return [one for one in (_carrier(one, catalogue) for one in plain) if one.begins or one.ends]


def _carrier(utterance: Utterance, catalogue: Catalogue) -> Carrier:
    text = utterance.text.rstrip(_END)
    places = read(text, catalogue).places
    lead = text[: min((start for start, _ in places), default=0)]
    begins = bool(places) and len(lead) <= _LEAD and not set(lead) & set("!:.：！。")
    return Carrier(utterance, begins, bool(places) and max(end for _, end in places) == len(text))


_END = "。.!！?？ "
_LEAD = 12
"""Characters of a time or a name before the wish."""


def qualified(chance: random.Random, carriers: Sequence[Carrier]) -> str:
    """One of them with one qualifier."""
    carrier = chance.choice(carriers)
    language, text = carrier.utterance.language, carrier.utterance.text.rstrip(_END)
    if carrier.ends and (not carrier.begins or chance.random() < 0.6):
        return text + chance.choice(BEHIND[language] + UNSEEN_BEHIND[language])
    return chance.choice(BEFORE[language] + UNSEEN_BEFORE[language]) + text
