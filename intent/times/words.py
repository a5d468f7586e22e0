"""What a single word says of a time, in both languages. Data; names of windows (overnight, 晚上 alone) are the lexicon's."""

from enum import Enum, auto
from typing import Any

from intent.times.clock import Clock
from intent.times.dates import WEEKDAYS, WEEKENDS, Day, in_days, several_days


class Mark(Enum):
    """What a word does in the saying of a time."""

    CLOCK = auto()
    NUMBER = auto()
    """A number that may be an hour (its value is a Clock), or not (an int)."""
    DAYS = auto()
    DAILY = auto()
    EVERY = auto()
    DATE = auto()
    """A day, and the part of it if the word says one."""
    PART = auto()
    ZONE = auto()
    TO = auto()
    LEAD = auto()
    """Stands before a time: from, on, outside."""
    BINDER = auto()
    THIS = auto()
    NEXT_DAY = auto()
    ALL_DAY = auto()
    REST = auto()
    """From now to a time of today."""
    EDGE = auto()
    """Stands behind a time and says which side of it is meant."""
    TRAILER = auto()
    SPAN = auto()
    COMMA = auto()
    WORD = auto()
    """None of these."""


Row = tuple[Mark, Any, str]
"""What its words do, what they mean (None: themselves), and the words."""

_DAYS: tuple[Row, ...] = (
    (Mark.DAYS, (0,), "mon monday mondays"),
    (Mark.DAYS, (1,), "tue tues tuesday tuesdays tuseday teusday"),
    (Mark.DAYS, (2,), "wed weds wednesday wednesdays wensday wednsday wendesday wednesdy"),
    (Mark.DAYS, (3,), "thu thur thurs thursday thursdays thrusday thursdy thurday"),
    (Mark.DAYS, (4,), "fri friday fridays"),
    (Mark.DAYS, (5,), "sat saturday saturdays saterday satuday staurday"),
    (Mark.DAYS, (6,), "sun sunday sundays"),
    (
        Mark.DAYS,
        WEEKDAYS,
        "weekday weekdays workday workdays weekdyas wekdays weekedays weekdys weeekdays 工作日 平日 上班日 非周末",
    ),
    (Mark.DAYS, WEEKENDS, "weekend weekends weekneds wekends weekeneds 周末 双休日 週末 非工作日"),
    (Mark.DAILY, "day", "daily 每天 每日 天天"),
    (Mark.DAILY, "night", "nightly 每晚 每夜 每天晚上 每天夜里 每天夜间 每天深夜"),
    (Mark.EVERY, "every", "every each 每 每个"),
    (Mark.ALL_DAY, None, "全天 整天 一整天 全日"),
    (Mark.THIS, None, "this next coming upcoming"),
    (Mark.SPAN, None, "week month year quarter"),
    (Mark.NEXT_DAY, None, "次日 第二天 翌日 隔天 次日凌晨 第二天凌晨"),
)

_DATES: tuple[tuple[Day, str | None, str], ...] = (
    (in_days(-1), None, "yesterday 昨天 昨日"),
    (in_days(0), None, "today 今天 今日"),
    (in_days(0), "tonight", "tonight 今晚 今夜 今天晚上"),
    (in_days(0), "morning", "今早"),
    (in_days(1), None, "tomorrow tommorow tommorrow tomorow tomorrrow tmr tmrw 明天 明日"),
    (in_days(1), "evening", "明晚 明天晚上"),
    (in_days(1), "morning", "明早"),
    (in_days(2), None, "后天"),
    (in_days(3), None, "大后天"),
    (several_days, None, "本周末 这周末 下周末 这个周末 下个周末 本周 这周 下周 本月 下个月 这个月"),
)

_HOURS: tuple[Row, ...] = (
    (Mark.CLOCK, Clock(720), "noon midday"),
    (Mark.CLOCK, Clock(1440), "midnight midnite mightnight 午夜"),
    (Mark.REST, Clock(1440), "今天剩余时间 今天剩下的时间 今天余下的时间"),
    (Mark.PART, "morning", "morning mornings 早上 早晨 清晨 上午 早间"),
    (Mark.PART, "day", "daytime 白天 日间"),
    (Mark.PART, "noon", "中午 正午"),
    (Mark.PART, "afternoon", "afternoon afternoons 下午 午后"),
    (Mark.PART, "evening", "evening evenings 傍晚 晚上 晚间"),
    (Mark.PART, "night", "night nights 夜里 夜间 深夜 半夜 夜晚"),
    (Mark.PART, "small hours", "凌晨"),
)

_BINDERS: tuple[Row, ...] = (
    (Mark.TO, "to", "to through thru 到 至 - ~ 〜 → ‐"),
    (Mark.TO, "until", "until till til 直到"),
    (Mark.TO, "and", "and or 和 及 与 或 & 、 / +"),
    (Mark.LEAD, None, "at in during for between throughout over before by"),
    (Mark.LEAD, "on", "on 在 于 每逢"),
    (Mark.LEAD, "from", "from 从 自"),
    (Mark.LEAD, "after", "after past since starting beginning"),
    (Mark.LEAD, "outside", "outside except excluding 除了 除"),
    (Mark.LEAD, "now until", "从现在到 从现在起到 从现在开始到 从现在至 现在到"),
    (Mark.BINDER, None, "the of a an 的 里"),
    (Mark.EDGE, "after", "onwards onward 以后 之后 后 开始 起"),
    (Mark.EDGE, "before", "以前 之前 前"),
    (Mark.EDGE, "until", "为止 止"),
    (Mark.EDGE, "outside", "以外 之外 除外 外"),
    (Mark.TRAILER, None, "hours hrs window 之间 期间 时段 时间段 这段时间 的时候"),
    (Mark.COMMA, None, ","),
)

WORDS: dict[str, tuple[Mark, Any]] = {
    word: (mark, word if value is None else value)
    for mark, value, words in (*_DAYS, *_HOURS, *_BINDERS)
    for word in words.split()
} | {word: (Mark.DATE, (day, part)) for day, part, words in _DATES for word in words.split()}
"""A word to what it does and means, common misspellings too."""

PHRASES: tuple[tuple[str, Mark, Any], ...] = (
    (r"(?:every|each)\s(?:single\s)?day", Mark.DAILY, "day"),
    (r"(?:every|each)\snight", Mark.DAILY, "night"),
    (r"(?:the\s)?day\safter\stomorrow", Mark.DATE, (in_days(2), None)),
    (r"(?:on\s)?the\s(?:next|following)\s(?:day|morning)|next\s(?:day|morning)", Mark.NEXT_DAY, None),
    (r"non[\s-](?:week|work|working|business)[\s-]?days?", Mark.DAYS, WEEKENDS),
    (r"(?:work|week|working|business)[\s-]days?", Mark.DAYS, WEEKDAYS),
    (r"(?:black|good)\sfriday|(?:cyber|easter|bank\sholiday)\smonday|holy\ssaturday", Mark.WORD, "holiday"),
    (r"m\s?-\s?f", Mark.DAYS, WEEKDAYS),
    (r"all\sday(?:\slong)?", Mark.ALL_DAY, "all day"),
    (
        r"outside\sof|except\sfor|other\sthan|apart\sfrom|but\snot(?:\s(?:on|at|during|in))?",
        Mark.LEAD,
        "outside",
    ),
    (r"from\snow\s(?:until|till?|to)", Mark.LEAD, "now until"),
    (r"up\suntil", Mark.LEAD, "until"),
    (r"starting\s(?:at|from)", Mark.LEAD, "after"),
    (r"between\sthe\shours\sof", Mark.LEAD, "hours"),
    (r"(?:until|till?)\s(?:the\s)?(?:end\sof\s(?:the\s)?day|eod)", Mark.REST, Clock(1440)),
    (r"(?:the\s)?rest\sof\s(?:the\sday|today)", Mark.REST, Clock(1440)),
    (r"12\s?noon", Mark.CLOCK, Clock(720)),
    (r"12\s?midnight", Mark.CLOCK, Clock(1440)),
    (r"and\s(?:up|later|after)", Mark.EDGE, "after"),
)
"""Regular expressions of words that are read together."""

_MONTHS = (
    "jan january", "feb february", "mar march", "apr april", "may", "jun june", "jul july", "aug august",
    "sep sept september", "oct october", "nov november", "dec december",
)  # fmt: skip
MONTHS = {name: month for month, names in enumerate(_MONTHS, 1) for name in names.split()}

_COUNT = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen",
    "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty",
)  # fmt: skip
NUMBERS = {word: value for value, word in enumerate(_COUNT)}
_HAN = {word: value for value, word in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2}


def numeral(said: str) -> int:
    """A whole number in digits, English words or Chinese numerals below 100; -1 if it is none."""
    if said.isdecimal() and said.isascii():
        return int(said[:6])
    if said in NUMBERS:
        return NUMBERS[said]
    tens, ten, ones = said.partition("十")
    if len(tens) > 1 or len(ones) > 1 or not all(part in _HAN for part in tens + ones):
        return -1
    return (_HAN.get(tens, 1) * 10 if ten else 0) + _HAN.get(ones if ten else said, 0)
