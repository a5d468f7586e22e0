"""Words that give the system orders instead of saying what the service must do.

Detection is only a flag for people: no text can approve itself or move a limit, whatever it says.
"""

import re
from functools import cache
from itertools import chain

from intent.fold import fold
from intent.tables import table

_GUARDS = (
    r"(?:limits?|rules?|instructions?|validations?|validators?|polic(?:y|ies)|checks?|approvals?|prompts?|safety|guardrails?|"
    r"quotas?|bounds|constraints?|everything|schema|permissions?|confirmations?|reviews?|safeguards?|restrictions?|"
    r"protections?|audit\w*)"
)
_SECRETS = (
    r"(?:system\s+prompts?|prompts?|api[\s_-]*keys?|keys?|secrets?|passwords?|credentials?|hidden\s+instructions?|"
    r"instructions|env(?:ironment)?\s+variables?|config\s+file)"
)
_LEAVE_OUT = (
    r"(?:ignor(?:e|ing)|disregard|overrid(?:e|ing)|overrule|bypass(?:ing)?|skip(?:ping)?|forget|disabl(?:e|ing)|circumvent|"
    r"suspend|(?:remove|drop)(?=\s+(?:all|any|every|your|the\s+(?:approval|validation|safe|check|guard|rule|polic|audit|restrict|confirm|review|protect|permission))\w*)|turn\s+off|switch\s+off)"
)
_TELL = (
    r"(?:reveal|show|print|output|tell|give|send|leak|repeat|what(?:'s|\s+is|\s+are)|display|dump|share|expose|email|post|"
    r"read\s+out)"
)
_HAN_GUARDS = (
    "(?:指令|限制|规则|校验|审批|验证|批准|确认|策略|安全|约束|检查|护栏|上限|提示词|权限|审核|流程|设定|要求)"
)
_HAN_LEAVE_OUT = "(?:忽略|无视|忽视|绕过|绕开|跳过|关闭|关掉|禁用|不用管|不要管|别管|不管|越过|违反|突破所有|省略|停用)"
_HAN_WITHOUT = "(?:不用|无需|不需要|不必|免|不经|不经过|未经|别走|不走|不要走|不要|不等|别等)"
_HAN_TELL = "(?:告诉|说出|显示|输出|打印|泄露|展示|给出|发给|透露|公布|念出|列出|读出|交出|发送|把)"
_HAN_SECRETS = r"(?:密钥|密码|口令|提示词|系统提示|隐藏指令|指令|api\s*key|凭证|令牌|秘钥)"
_NEAR = "[^。;,，；]"

_PATTERNS = (
    # leave out a guard
    rf"\b{_LEAVE_OUT}\b(?:\s+(?!to\b|below\b)[^\s.;,]+){{0,6}}?\s+{_GUARDS}\b",
    rf"{_HAN_LEAVE_OUT}{_NEAR}{{0,14}}?{_HAN_GUARDS}",
    (
        rf"(?:限制|规则|校验|审批|验证|护栏|策略|检查|权限|约束|指令){_NEAR}{{0,6}}?"
        r"(?:忽略|无视|跳过|关掉|关闭|绕过|绕开|取消掉|停掉|作废)"
    ),
    rf"(?:取消|解除|去掉|撤掉){_NEAR}{{0,10}}?(?:校验|审批|验证|批准|确认|安全|检查|护栏|权限|审核)",
    rf"{_HAN_LEAVE_OUT}\s*(?:[a-z]+\s+){{0,2}}{_GUARDS}|\b{_LEAVE_OUT}\b\s*{_NEAR}{{0,6}}?{_HAN_GUARDS}",
    r"\bwithout\s+(?:\w+\s+){0,3}(?:approvals?|confirmation|validation|sign-?off)\b|(?:不用|无需|不走|不等)\s*approval",
    # approve, or do without an approval
    r"\b(?:auto-?\s?)?approv(?:e|ed|ing)\b(?:\s+(?:it|this|everything|the\s+plan|automatically|yourself|without\s+\w+))?",
    (
        r"\b(?:without|no|needs?\s+no|(?:don'?t|do\s+not)\s+(?:need|ask\s+for|wait\s+for))\s+(?:any\s+|for\s+|an\s+)?"
        r"(?:approval|confirmation|validation|review|sign-?off)\b"
    ),
    (
        r"\bwithout\s+asking\b|\bno\s+questions\s+asked\b|"
        r"\bdon'?t\s+ask\s+(?:me|us|for|any\w*|back|again|questions|the|whether|if|him|her|them)\b"
    ),
    rf"{_HAN_WITHOUT}{_NEAR}{{0,6}}?(?:批准|审批|审核|确认|校验|验证|签字|走流程|流程|同意)",
    r"(?:自动|直接|立即|马上|给我|全部|默认|一律|已经?|都|视为|替我|帮我|请)\s*(?:批准|审批|通过审批|审批通过|同意)",
    "批准(?:自己|这个|该|此|所有|它|计划|方案|一切)|(?:已|都|均)?(?:获批|批准了|审批过了|审批过)|直接(?:执行|生效|上线|应用|下发)",
    # be somebody else
    (
        r"\b(?:you\s+are\s+now|act\s+as|pretend\s+to\s+be|new\s+instructions?|system\s+prompt|developer\s+mode|jailbreak|"
        r"god\s+mode|dan\s+mode)\b"
    ),
    r"\bas\s+(?:an?\s+|the\s+)?(?:admin|administrator|root|superuser)\b|\b(?:sudo|grant\s+me|make\s+me\s+(?:an?\s+)?admin)\b",
    f"系统提示|你(?:现在)?不(?:再)?受{_NEAR}{{0,6}}?(?:约束|限制|管)|从现在(?:起|开始)你",
    "系统提示词|开发者模式|你现在是|扮演|假装(?:你|自己)|(?:以|用)?管理员(?:身份|权限|模式)|越狱",
    # tell a secret
    rf"\b{_TELL}\b(?:\s+[^\s.;,]+){{0,4}}?\s+{_SECRETS}\b",
    rf"{_HAN_TELL}{_NEAR}{{0,10}}?{_HAN_SECRETS}",
    # run a command
    r"\b(?:run|execute|exec|eval)\b(?:\s+[^\s.;,]+){0,3}?\s+(?:command|commands|script|shell|bash|code)\b",
    rf"(?:执行|运行){_NEAR}{{0,6}}?(?:命令|脚本|代码|shell|指令)",
    r"/etc/(?:passwd|shadow)|\bid_rsa\b|\b\.env\b|\brm\s+-\w+|\b(?:curl|wget)\s+\S+|\bos\.system|\bsubprocess\b|\$\(",
    r"\bdrop\s+table\b|;\s*--",
    # break out of the frame
    r"(?:^|\n)\s*(?:system|assistant|developer)\s*:|\[\s*(?:system|inst)\s*\]|\#{2,}\s*(?:system|instructions?|new\s+task)\b",
    r"<\|[^|>]*\|>|<\/?(?:system|assistant|user|operator_text)>|```|\bend\s+of\s+input\b",
)
_DISGUISED = re.compile(r"\b(?=[a-z0-9$@]*[a-z])(?=(?:[a-z$@]*[0-9]){2})[a-z0-9$@]{4,}\b", re.ASCII)
"""A word with digits for some of its letters: ``1gn0r3``."""
_DIGITS = str.maketrans("013457$@", "oieastsa")


@cache
def _talk() -> tuple[str, ...]:
    """What no wish speaks of."""
    return tuple(chain.from_iterable(table("intent", "suspicious").values()))


@cache
def _pattern(patterns: tuple[str, ...]) -> re.Pattern[str]:
    """Any of them; a Han letter ends a Latin word."""
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns), re.ASCII)


def orders(text: str) -> list[tuple[int, int]]:
    """The half-open places in the text that give the system orders."""
    return _places(text, _PATTERNS)


def suspicious(text: str) -> list[tuple[int, int]]:
    """Those, and what sounds like more of them.

    Talk of guards, records and secrets, and disguised letters.
    """
    return _places(text, _PATTERNS) or _places(text, _talk())


def _places(text: str, patterns: tuple[str, ...]) -> list[tuple[int, int]]:
    folded = fold(text)
    plain = _DISGUISED.sub(lambda word: word[0].translate(_DIGITS), folded.text)
    found = sorted(
        match.span() for words in dict.fromkeys((folded.text, plain)) for match in _pattern(patterns).finditer(words)
    )
    apart = [here for place, here in enumerate(found) if all(before[1] <= here[0] for before in found[:place])]
    return [folded.span(*here) for here in apart]
