"""Words that give the system orders instead of saying what the service must do.

Detection is only a flag for people: no text can approve itself or move a limit, whatever it says.
"""

import re
from functools import cache

from intent.fold import fold

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
_HAN_GUARDS = "(?:指令|限制|规则|校验|审批|验证|批准|确认|策略|安全|约束|检查|护栏|上限|提示词|权限|审核|流程|设定|要求)"
_HAN_LEAVE_OUT = (
    "(?:忽略|无视|忽视|绕过|绕开|跳过|关闭|关掉|禁用|不用管|不要管|别管|不管|越过|违反|突破所有|省略|停用)"
)
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
_TALK = (
    # talk of what guards the system: no wish needs these words
    r"(?<!an )(?<!our )\bapprovals?\b|\bapprovers?\b|\b(?:validators?|validations?|guardrails?|privileges?)\b|\bpolic(?:y|ies)\b",
    r"\baudit(?:s|ing)?[\s_-]*(?:logs?|trails?|logger|records?|history|off)\b|\baudit\s*=|\b(?:cluster-)?admin(?:s|istrators?)?\b",
    r"\b(?:your|its|the|full|all|every|hidden|secret|prior|previous)\s+(?:\w+\s+)?(?:instructions?|permissions?|restrictions?)\b",
    r"\bno\s+(?:more\s+)?(?:restrictions?|limits|rules|permissions?)\b|\bnobody'?s\s+permission\b|\bunrestricted\b",
    r"\b(?:the|your)\s+(?:limits?|rules?)\s+(?:no\s+longer|do(?:es)?\s*n[o']t)\b|\bwaive\s+the\s+(?:\w+\s+)?(?:polic|rule|check|review)\w*",
    r"\b(?:safety|your)\s+(?:limits?|switch(?:es)?|checks?|rules?|filters?)\b|\bmark\s+\S+\s+(?:review|approvals?|checks?|request)\b",
    r"\b(?:system|security|safety)\s+overrid\w+|\boverrid\w+\s+(?:code|mode|all)\b|\bimpersonat\w+|\bpretend\s+that\b",
    r"\byou(?:\s+are|'re)\s+(?:now\s+|a\s+|an\s+)?(?:root|admin|dan|\w*bot)\b|\b(?:as|is|are|am|be)\s+root\b|\bcover\s+your\s+tracks\b",
    r"\b(?:credentials?|api\s+keys?|private\s+keys?|signing\s+keys?|environment\s+variables?)\b|\bkubectl\s+(?:delete|apply|exec|patch|edit|scale|drain)\b",
    r"\bdecode\b|\b(?=[A-Za-z0-9+/]*[A-Z])(?=[A-Za-z0-9+/]*[a-z])(?=[A-Za-z0-9+/]*\d)[A-Za-z0-9+/]{12,}={1,2}",
    r"\bdo\s+not\s+log\b|\bdon'?t\s+log\b|\bnever\s+mention\b|\b(?:and|then)\s+obey\b|;\s*obey\b|\bthe\s+(?:ai|assistant|model)\s+must\b",
    "审批|预先批准|无条件批准|审计(?:日志|记录|轨迹)|冒充|提权|私钥|秘钥|策略文件|走流程|系统指令|用户输入结束|root\\s*身份",
    f"(?:限制|上限|规则|校验|策略){_NEAR}{{0,4}}?(?:解除|撤销|失效|无效|放开|去掉)|省去{_NEAR}{{0,4}}?(?:校验|验证|检查|审核)",
    # talk of the records of what was wished, seen and decided
    r"\b(?:read-?back|(?:the|no|record)\s+(?:\w+\s+)?findings?|unsigned|as\s+reviewed|(?:reviewer's|without\s+a)\s+signature|sign-?off\s+gate|canary\s+gate|dry\s+run|change\s+board|second\s+pair\s+of\s+eyes)\b",
    r"\b(?:log\s+entry|backdat\w+|falsif\w+|forge|forged|usage\s+counters?|acknowledged?|skip_\w+|approved_by|\w+_enabled)\b",
    r"\b(?:every|all|any|\w+'s)\s+(?:\w+\s+){0,2}(?:intents?|operators'?)\b|\bstatus\s+ok\b|\b(?:as|is|look)\s+(?:suspicious|harmless)\b|\bno\s+conflict\b",
    r"\bsay\s+(?:it|that\s+it)\s+was\b|\breject\s+(?:whatever|everything|every|all)\b|\byou\s+(?:must|are\s+instructed|no\s+longer)\b|\bleave\s+no\s+trace",
    r"\b(?:stop|quit|cease)\s+(?:asking|checking|logging|recording|confirming|validating)\b|\bchecks?\s+(?:must|should|can)\s+be\b|\b(?:off|disable)\s+the\s+\w+\s+guard\b",
    r"\b(?:kubeconfig|authorized_keys|authentication|rot13|base64|public\s+key|(?:service\s+account|access|bearer|auth)\s+token)\b|\bport\s+22\b|\bhttps?://",
    r"\brestart\s+yourself\b|\bremove\s+the\s+quotas?\b|\b(?:dear|for\s+the)\s+bot\b|\bbot\)|\bzero\s+out\b|\btenant's\s+invoice\b|\blanguage\s+model\b|\babove\s+this\s+sentence\b|\bverbatim\b",
    r"\bexecute\s+it\b|\bas\s+i\s+say\b|\bgrandmother\b|\bwho\s+filed\b|<div|<!--|display\s*:\s*none",
    r"回读|校验器|伪造|复核人|已复核|账单(?:上|.{0,3}清零)|费用记到|签过字|点一下通过|解码|机器人请|意图|\bintent\b.{0,12}(?:撤|取消)|(?:撤|取消|cancel|withdraw|delete)[^。;,]{0,14}\bintents?\b|注入|标记这条|可疑|无害|公钥|鉴权|配额|一律拒绝|不要留下|操作记录|写进日志|接口停掉|告警的接口",
    "如果有人问|就说是|当没看见|返回成功|别告诉他|不要让他们发现|令牌|改成已",
    # letters set apart
    r"\b(?:[a-z][ .]){4,}[a-z]\b|(?:[\u4e00-\u9fff] ){3}[\u4e00-\u9fff]|\b(?:[a-z] +){4,}",
)
"""Words that no wish needs: a person looks at the text, and no word of it is left out for them."""
_DISGUISED = re.compile(r"\b(?=[a-z0-9$@]*[a-z])(?=(?:[a-z$@]*[0-9]){2})[a-z0-9$@]{4,}\b", re.ASCII)
"""A word with digits for some of its letters: ``1gn0r3``."""
_DIGITS = str.maketrans("013457$@", "oieastsa")


@cache
def _pattern(patterns: tuple[str, ...]) -> re.Pattern[str]:
    """Any of them; a Han letter ends a Latin word."""
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns), re.ASCII)


def orders(text: str) -> list[tuple[int, int]]:
    """The half-open places in the text that give the system orders."""
    return _places(text, _PATTERNS)


def suspicious(text: str) -> list[tuple[int, int]]:
    """Those, and what sounds like more of them: talk of guards, records and secrets, and disguised letters."""
    return _places(text, _PATTERNS) or _places(text, _TALK)


def _places(text: str, patterns: tuple[str, ...]) -> list[tuple[int, int]]:
    folded = fold(text)
    plain = _DISGUISED.sub(lambda word: word[0].translate(_DIGITS), folded.text)
    found = [
        match for words in dict.fromkeys((folded.text, plain)) for match in _pattern(patterns).finditer(words)
    ]
    return [folded.span(match.start(), match.end()) for match in found]
