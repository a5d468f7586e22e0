"""What a word or phrase does in a sentence. A leaf."""

from enum import StrEnum, auto

ANY_LATENCY = "latency"
ANY_THROUGHPUT = "throughput"
"""Metrics that a text can name without saying which one it means."""
EVERYONE = ""
"""The tenant that is everybody."""


class Kind(StrEnum):
    """The part a word or phrase plays."""

    METRIC = auto()
    STAT = auto()
    COMPARISON = auto()
    OPTIMISE = auto()
    CHEAPEST = auto()
    VAGUE = auto()
    NUMBER = auto()
    MULTIPLIER = auto()
    UNIT = auto()
    CURRENCY = auto()
    CENT = auto()
    PERIOD = auto()
    PER_USER = auto()
    THING = auto()
    """What a bare number counts: tokens, requests."""
    TIMES = auto()
    TIMES_SAID = auto()
    """``once``, ``twice``: a count that is also a factor."""
    QUANTITY = auto()
    RANGE = auto()
    BETWEEN = auto()
    WINDOW = auto()
    OVER = auto()
    """Over how long something is measured; its value is in seconds."""
    BAD_TIME = auto()
    """A time that cannot be; its value is the problem's code."""
    TENANT = auto()
    MODEL = auto()
    AUDIENCE = auto()
    """users, customers: makes the name before it a tenant."""
    SETTING = auto()
    COUNTED = auto()
    PRECISION = auto()
    LAYERS = auto()
    """Some layers of a model; its value is what rules for formats call each, "" where that is open."""
    QUANTISE = auto()
    SELECTOR = auto()
    WORKLOAD = auto()
    QUALITY = auto()
    PRIORITY = auto()
    RECONFIG = auto()
    RESPECTIVELY = auto()
    EXCEPT = auto()
    MAY = auto()
    ALLOW = auto()
    AVOID = auto()
    FREEZE = auto()
    ONLY = auto()
    SOFT = auto()
    CHANGE = auto()
    FACTOR = auto()
    BY = auto()
    TO = auto()
    NOW = auto()
    MORE = auto()
    SAME = auto()
    NEGATION = auto()
    TURNED = auto()
    """A negation that has turned a comparison round."""
    REPORT = auto()
    """Asks or tells what is or was, and wishes nothing."""
    BECAUSE = auto()
    LIMITING = auto()
    """Changes a wish in a way that no goal can hold: unless, about, or."""
    LIST = auto()
    """Joins two of a kind: ``TTFT and TPOT``."""
    JOIN = auto()
    STOP = auto()
    ORDER = auto()
    FILLER = auto()
    UNKNOWN = auto()
