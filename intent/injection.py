"""Words that give the system orders instead of saying what the service must do.

Detection is only a flag for people: no text can approve itself or move a limit, whatever it says.
"""

import re

from intent.fold import fold

_ORDERS = re.compile(
    r"""\b(?:ignore|disregard|override|overrule|bypass|skip|forget|disable|circumvent|suspend)\b[^.;,]{0,40}?
          \b(?:limits?|rules?|instructions?|validations?|validator|polic(?:y|ies)|checks?|approvals?|prompts?|safety|
             guardrails?|quotas?|bounds|constraints?|everything|schema|permissions?)\b
      | \b(?:auto-?\s?)?approved?\b(?:\s+(?:it|this|everything|the\s+plan|automatically|yourself|without\s+\w+))?
      | \b(?:without|no|needs?\s+no)\s+(?:any\s+)?(?:approval|confirmation|validation)\b
      | \b(?:you\s+are\s+now|act\s+as|pretend\s+to\s+be|new\s+instructions?|system\s+prompt|developer\s+mode)\b
      | \bas\s+(?:an?\s+|the\s+)?(?:admin|administrator|root|superuser)\b
      | (?:^|\n)\s*(?:system|assistant|developer)\s*:
      | <\|[^|>]*\|> | <\/?(?:system|assistant|user|operator_text)> | ``` | \bend\s+of\s+input\b
      | 忽略[^。;,]{0,20}(?:指令|限制|规则|校验) | 跳过(?:校验|审批|验证) | 自动批准
    """,
    re.VERBOSE,
)


def orders(text: str) -> list[tuple[int, int]]:
    """The half-open places in the text that give the system orders."""
    folded = fold(text)
    return [folded.span(match.start(), match.end()) for match in _ORDERS.finditer(folded.text)]
