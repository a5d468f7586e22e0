"""What English operators write, phrase by phrase: data for ``intent.lexicon``.

A phrase is split like the text, so ``off-peak``, ``off peak`` and ``Off Peak`` are one entry.
"""

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from intent.kinds import ANY_LATENCY, ANY_THROUGHPUT, EVERYONE, Kind

_SECONDS = {
    1e-6: ("us", "µs", "μs", "usec", "microsecond", "microseconds"),
    1e-3: ("ms", "msec", "msecs", "millisecond", "milliseconds", "millis", "milli"),
    1.0: ("s", "sec", "secs", "second", "seconds"),
    60.0: ("mins", "minute", "minutes"),
    3600.0: ("h", "hr", "hrs", "hour", "hours"),
    86400.0: ("day", "days"),
}
_PERIODS = {
    "s": ("s", "sec", "second"),
    "min": ("min", "minute"),
    "h": ("h", "hr", "hour"),
    "day": ("day", "d"),
    "week": ("week", "wk"),
    "month": ("month", "mo"),
    "Mtok": (
        "mtok", "million tokens", "1m tokens", "m tokens", "million token", "1m tok", "mtokens", "1 million tokens",
        "1m", "million",
    ),
}  # fmt: skip
_PER = ("/", "per", "a", "an", "each", "every", "in a")
_TOKENS = ("tok", "toks", "token", "tokens", "output tokens", "t", "generated tokens", "tks", "tkn")
_REQUESTS = ("req", "reqs", "request", "requests", "query", "queries", "call", "calls", "r", "q")
_PERCENTILES = ("50", "90", "95", "99", "99.9")


def _words(text: str) -> list[str]:
    return text.split()


METRICS = {
    "ttft": (
        "ttft", "ttfts", "time to first token", "time to the first token", "first token", "first tokens", "first token time",
        "first token latency", "first token delay", "time till first token", "time until first token",
        "time until the first token", "time before the first token", "time to first byte", "ttfb", "first response token",
        "prefill latency", "time to start streaming",
    ),
    "tpot": (
        "tpot", "itl", "itls", "time per output token", "time per token", "time between tokens", "inter token latency",
        "inter token time", "intertoken latency", "token latency", "per token latency", "latency per token", "tbt",
        "decode latency", "per output token latency", "token to token latency", "inter token delay", "latency between tokens",
        "inter token gap", "time per generated token",
    ),
    "e2e": (
        "e2e", "e2e latency", "end to end", "end to end latency", "end to end time", "response time", "response times",
        "request latency", "total latency", "total time", "full response", "full response time", "total response time",
        "end to end response time", "whole answer", "full answer", "e2e time", "complete response", "request duration",
        "end to end latencies", "e2e latencies", "time to last token", "ttlt",
    ),
    "reconfig_pause": (
        "pause", "pauses", "reconfiguration pause", "reconfig pause", "switch pause", "switching pause", "stop window",
        "switchover pause", "cutover pause", "cutover", "cutover time", "interruption", "interruptions", "hiccup",
        "hiccups", "stall", "stalls", "pause time", "switch time", "reconfiguration pauses", "cutovers", "downtime",
        "pause during reconfiguration", "pause while switching", "freeze of the streams", "switchover", "switchover time",
        "pause when switching", "pause on reconfiguration", "reconfiguration pause time", "reconfiguration downtime",
    ),
    "throughput_tok": (
        "token throughput", "output throughput", "throughput in tokens", "generation speed", "tokens throughput",
        "output token throughput", "generation throughput", "decode throughput", "token rate", "output rate", "streaming speed", "output speed", "decoding speed", "token speed", "generation rate", "decode speed", "streaming rate",
    ),
    "throughput_req": (
        "request throughput", "request rate", "throughput in requests", "requests throughput",
    ),
    "gpu_util": (
        "gpu utilisation", "gpu utilization", "gpu util", "gpu usage", "gpu load", "utilisation", "utilization", "util",
        "utilisation of the gpus", "utilization of the gpus", "gpus utilisation", "gpus utilization", "gpu occupancy",
        "gpu busy", "utilisation of gpus", "utilization of gpus", "gpus busy", "average gpu utilisation",
        "cluster utilisation", "cluster utilization", "gpu utils", "gpu utlization", "gpu utilizaton",
    ),
    "availability": ("availability", "uptime", "available", "success rate", "successful requests", "service availability", "succeed", "succeeds"),
    "error_rate": (
        "error rate", "error rates", "errors", "failure rate", "failures", "failed requests", "error ratio", "5xx",
        "5xx rate", "error budget", "error percentage", "request errors", "5xx errors", "fail", "fails", "failing", "error out", "errored requests",
    ),
    "quality_loss": (
        "quality loss", "quality drop", "loss of quality", "accuracy loss", "accuracy drop", "quality degradation",
        "accuracy degradation", "loss in quality", "drop in quality", "loss of accuracy", "quality regression",
        "loss in accuracy", "drop in accuracy", "degradation in quality", "quality hit", "accuracy hit",
    ),
    "gpu_count": ("gpu count", "number of gpus", "device count", "number of devices", "gpu budget", "gpu footprint"),
    "cost": (
        "cost", "costs", "spend", "spending", "price", "bill", "expense", "expenses", "budget", "budgets", "run rate",
        "burn", "burn rate", "bills", "cost budget", "gpu cost", "gpu costs", "gpu spend", "gpu bill", "costing",
        "total cost", "hourly cost", "cost bound", "cost limit", "infra cost", "compute cost", "serving cost", "budget cap",
        "gpu budget in dollars", "spent", "cost cap", "compute bill",
    ),
    ANY_LATENCY: ("latency", "latencies", "delay", "delays", "lag", "response latency", "response speed", "response"),
    ANY_THROUGHPUT: ("throughput", "thruput", "throughputs"),
}  # fmt: skip

STATS: dict[str, tuple[str, ...]] = {
    f"p{n}": (
        f"p{n}", f"p {n}", f"{n}th percentile", f"{n} percentile", f"percentile {n}", f"{n}%ile", f"{n}th %ile", f"{n}th",
        f"{n}th pct", f"{n}th pctl", f"pct{n}", f"perc{n}", f"q{n}", f"tp{n}" if n in {"90", "99", "99.9"} else f"p-{n}",
        f"{n} pctl",
    )
    for n in _PERCENTILES
} | {"mean": ("mean", "average", "avg", "on average", "averages")}  # fmt: skip
STATS["p50"] += ("median", "typical", "half of requests", "half the requests", "half of all requests")
STATS["p99.9"] += ("p999", "p99 9")
STATS["p99"] += ("ninety ninth percentile", "ninety-nine percentile", "ninety nine percentile")
STATS["p95"] += ("ninety fifth percentile",)
STATS["p90"] += ("ninetieth percentile",)

COMPARISONS = {
    "<=": (
        "<", "<=", "=<", "≤", "under", "below", "beneath", "less than", "lower than", "smaller than", "fewer than",
        "at most", "at the most", "maximum", "maximum of", "max", "max of", "a maximum of", "up to", "within", "or less",
        "or lower", "or below", "or under", "or fewer", "cap", "cap at", "cap it at", "capped at", "limited to", "down to",
        "shorter than", "earlier than", "inside of", "less than or equal to", "lower than or equal to", "inside",
        "smaller than or equal to", "stay under", "south of", "tops", "ceiling", "ceiling of", "upper bound", "upper limit",
        "upper limit of", "caps at", "cap of", "a cap of", "limit of", "sub", "or shorter", "or smaller", "as low as",
        "lte", "lt", "less or equal", "not to exceed", "a ceiling of", "in under", "in less than", "at maximum", "hard cap",
        "no greater or equal than", "le",
    ),
    ">=": (
        ">", ">=", "=>", "≥", "over", "above", "more than", "greater than", "higher than", "larger than", "at least",
        "at the least", "minimum", "minimum of", "a minimum of", "min", "min of", "or more", "or higher", "or above",
        "exceed", "exceeds", "exceeding", "longer than", "later than", "beyond", "and up", "greater than or equal to",
        "more than or equal to", "higher than or equal to", "floor", "floor of", "a floor of", "lower bound", "or greater",
        "lower limit", "lower limit of", "north of", "go over", "go above", "goes above", "goes over", "going over",
        "going above", "rise above", "rises above", "climb above", "pass", "surpass", "top", "gte", "gt", "upwards of",
        "go beyond", "creep above", "creep over", "spike above", "spike over", "or over", "overshoot", "or longer",
        "not less than", "ge", "and above", "and over", "go past", "get above", "get over", "stays above",
    ),
    "==": ("=", "==", "equal to", "equals", "exactly", "precisely"),
    "better": (
        "or better", "better than", "or faster", "faster than", "quicker than", "or quicker", "cheaper than", "or cheaper",
    ),
    "worse": ("worse than", "slower than", "or worse", "or slower", "worse", "more expensive than"),
}  # fmt: skip
"""Operator to phrases; ``better`` and ``worse`` become ``<=`` or ``>=`` by the metric's direction."""

WINDOWS = {
    "always": (
        "always", "at all times", "all the time", "at any time", "any time", "24/7", "24x7", "around the clock", "all day",
        "day and night", "at any hour", "round the clock", "at every hour", "all hours", "no matter when", "all day long",
        "regardless of time", "any time of day", "at all hours",
    ),
    "peak": (
        "peak", "peak hours", "peak time", "peak times", "peak traffic", "peak load", "the peak", "peak hour", "peak period",
        "rush hour", "rush hours", "on peak", "peaks", "busy hours", "peak window", "the busy hours", "busy hour",
        "rush time", "peak periods", "the rush", "busiest hours", "busy times", "busy period", "prime time",
    ),
    "off_peak": (
        "off peak", "offpeak", "off peak hours", "off peak times", "outside peak", "outside of peak", "off hours",
        "outside peak hours", "outside of peak hours", "outside the peak", "not peak hours", "non peak", "non peak hours",
        "quiet hours", "outside peak times", "offpeak hours", "outside the peak hours", "the quiet hours", "off peak time",
        "slow hours", "outside of peak time", "outside peak time", "off peak periods", "out of peak", "idle hours",
        "except at peak", "except during peak", "except during peak hours", "except at peak hours", "except peak",
        "except peak hours", "except in peak hours", "low traffic hours", "outside of peak times", "when it's quiet",
        "when its quiet", "when traffic is low", "when it is quiet", "other than at peak", "off peak period",
        "outside of the peak", "when not at peak",
    ),
    "overnight": (
        "overnight", "at night", "nights", "night", "nighttime", "during the night", "night time", "at nighttime",
        "the night", "every night", "nightly", "night hours", "through the night", "in the night",
    ),
    "business_hours": (
        "business hours", "office hours", "working hours", "work hours", "business hour", "the business day",
        "the working day", "regular hours", "business time",
    ),
}  # fmt: skip

SETTINGS = {
    "tp": (
        "tp", "tp size", "tp degree", "tensor parallel", "tensor parallelism", "tensor parallel size",
        "tensor parallel degree", "tp level", "tensor parallelism degree", "tensor parallelism size",
    ),
    "pp": (
        "pp", "pp size", "pp degree", "pipeline parallel", "pipeline parallelism", "pipeline parallel size",
        "pipeline parallel degree", "pipeline depth", "pipeline parallelism degree", "pipeline",
    ),
    "replicas": ("replica count", "number of replicas", "dp", "data parallel", "data parallelism", "replica number"),
}  # fmt: skip
"""Topology settings whose number follows: ``tp=2``."""

COUNTED = {
    "tp": (
        "way tensor parallel", "way tensor parallelism", "way tp", "tensor parallel ranks", "tp ranks", "x tp",
        "x tensor parallel", "ranks", "tensor parallel shards", "tp shards",
    ),
    "pp": (
        "pipeline stages", "pipeline stage", "stages", "stage pipeline", "stage", "pp stages", "way pipeline parallel",
        "way pp", "way pipeline parallelism", "way pipeline", "x pp",
    ),
    "replicas": ("replica", "replicas", "copies", "copies of the model", "instances", "model copies", "copy"),
    "gpu_count": ("gpu", "gpus", "device", "devices", "cards", "accelerators", "card", "gpu cards", "graphics cards"),
}  # fmt: skip
"""Things whose number stands before them: ``2 pipeline stages``."""

OPTIMISATIONS = {
    "minimize": (
        "minimise", "minimize", "minimal", "lowest", "smallest", "shortest", "as low as possible", "minimising",
        "minimizing", "as small as possible", "as short as possible", "minimized", "minimised", "as low as it gets",
        "lowest possible", "shortest possible", "as little as possible", "minimum possible", "smallest possible",
        "fewest", "as few as possible", "least", "the lowest", "the least", "fewest possible", "as low as you can", "as few", "as little",
        "as little as you can", "as few as you can",
    ),
    "maximize": (
        "maximise", "maximize", "maximal", "highest", "largest", "as high as possible", "maximising", "maximizing",
        "as much as possible", "max out", "highest possible", "as many as possible", "maximum possible", "maximized",
        "maximised", "the highest", "the most", "as high as you can", "squeeze out the most", "as much as you can",
        "squeeze out as much", "push to the max", "best possible", "as much", "as many",
    ),
}  # fmt: skip

VAGUE = {
    "fast": (
        "as fast as possible", "as quick as possible", "as quickly as possible", "fast", "faster", "fastest", "quick",
        "quicker", "quickly", "snappy", "snappier", "responsive", "speed", "speed up", "performance", "slow", "slower",
        "sluggish", "lightning fast", "speedy", "perf", "more responsive",
    ),
    "cheap": ("cheap", "cheaper", "save money", "economical", "save cost", "save costs", "cut costs", "less expensive", "expensive"),
    "good": (
        "better", "optimise", "optimize", "tune", "best", "improve things", "good", "stable", "healthy", "smooth", "reliable",
        "efficient", "nice", "great", "optimal", "perform", "awesome",
    ),
}  # fmt: skip
"""Wishes without a metric: what they could mean is asked."""

_CHEAPEST = (
    "as cheap as possible", "as cheaply as possible", "cheapest", "cheapest possible", "the cheapest way", "at the lowest cost",
    "at lowest cost", "as inexpensive as possible", "as cheap as you can", "as cheaply as you can", "at minimum cost",
    "at minimal cost", "as cheap as it gets", "for the lowest cost", "with the lowest cost", "with minimal cost",
    "least expensive", "for as little money as possible", "lowest cost possible",
)  # fmt: skip
"""Metric and optimisation at once."""

CHANGES = {
    "<=": _words(
        "cut cuts cutting reduce reduces reducing lower lowers lowering decrease decreases decreasing drop drops dropping "
        "shrink trim shave slash shorter less fewer smaller fall falls falling sink dip dips reduction decreased reduced"
    )
    + ["bring down", "knock off", "take off", "go down", "scale down", "lower than now", "get down", "come down", "dial down",
       "shave off", "cut down", "down", "off of", "drive down", "push down", "slim down", "cut back", "squeeze down"],
    ">=": _words(
        "raise raises raising increase increases increasing boost boosts lift grow push higher more larger rise rises "
        "bump climb increased raised greater"
    )
    + ["bring up", "go up", "scale up", "bump up", "get up", "up", "step up", "ramp up", "dial up", "crank up", "push up", "drive up"],
    "better": [*_words("improve improves improved improving"), "speed up by", "get better"],
    "worse": [*_words("relax relaxes relaxed loosen degrade loosened"), "slow down"],
}  # fmt: skip
"""Which way a change goes."""

FACTORS = {
    0.5: ("halve", "halved", "in half", "by half", "half of what it is", "halving", "half of what it is now", "half the current",
          "half of the current", "half of current", "to half", "cut in half", "half of today's", "half what it is now", "half as much"),
    2.0: ("double", "doubled", "twice the", "by a factor of two", "twice as much", "twofold", "doubling", "twice as high",
          "twice the current", "twice what it is now"),
    3.0: ("triple", "tripled", "threefold", "treble"),
    4.0: ("quadruple", "fourfold"),
}  # fmt: skip

PRECISIONS = {
    "int4": ("int4", "int 4", "4 bit", "4bit", "w4", "w4a16", "awq int4", "i4", "four bit", "int4s", "4 bits", "awq", "gptq"),
    "int8": ("int8", "int 8", "8 bit integer", "w8a8", "w8", "i8", "8 bit int", "int8s"),
    "fp8": ("fp8", "fp 8", "8 bit float", "float8", "f8", "e4m3", "8 bit floating point"),
    "fp16": ("fp16", "fp 16", "float16", "half precision", "f16"),
    "bf16": ("bf16", "bf 16", "bfloat16", "bfloat 16"),
    "full": (
        "full precision", "unquantised", "unquantized", "full weights", "non quantized", "non quantised", "original precision",
        "native precision", "no quantisation at all", "full accuracy weights",
    ),
}  # fmt: skip

WORKLOADS = {
    "latency_critical": (
        "latency critical", "latency critical traffic", "latency critical requests", "latency critical work", "latency critical jobs",
        "latency critical workloads", "latency critical stuff", "latency critical workload",
    ),
    "latency_sensitive": (
        "latency sensitive", "latency sensitive traffic", "latency sensitive requests", "latency sensitive work",
        "latency sensitive workloads", "latency sensitive stuff", "latency sensitive jobs",
    ),
    "batch": (
        "batch", "batch jobs", "batch traffic", "batch work", "batch requests", "batch workloads", "batch workload", "batch job",
        "batches", "batch processing", "batch inference",
    ),
    "interactive": (
        "interactive", "interactive traffic", "interactive requests", "interactive work", "interactive workloads", "interactive users",
        "interactive sessions", "interactive workload",
    ),
    "chat": ("chat", "chat traffic", "chat requests", "chats", "chatbot", "chat workload", "chat workloads"),
    "offline": ("offline", "offline jobs", "offline traffic", "offline work", "offline requests", "offline workloads", "offline batch"),
    "online": ("online", "online traffic", "online requests", "online serving", "online workloads"),
    "background": ("background", "background jobs", "background traffic", "background work", "background requests", "background tasks"),
    "realtime": ("realtime", "real time", "real time traffic", "realtime traffic", "real time requests", "realtime requests"),
    "prefill": ("prefill", "prefills"),
    "decode": ("decode", "decodes", "decoding"),
    "rest": (
        "the rest", "everything else", "all else", "the others", "others", "other traffic", "rest", "all other traffic",
        "all the rest", "the remaining", "the remainder", "all other requests", "anything else", "all others", "everyone else",
        "the rest of the traffic", "the rest of it", "all other workloads", "other workloads", "the other traffic",
        "other requests",
    ),
}  # fmt: skip

PRIORITIES = {
    "first": (
        "prioritise", "prioritize", "priority", "favour", "favor", "first", "comes first", "is first", "prioritised", "prioritized",
        "most important", "matters most", "top priority", "highest priority", "give priority to", "takes priority", "prefer to keep",
        "takes precedence", "precedence", "most of all", "is king", "above all", "above everything", "above all else", "is the priority",
        "before everything", "before anything else", "over everything else", "over everything", "before everything else",
        "over all else", "above everything else", "over anything else", "number one", "goes first", "prioritising", "prioritizing",
        "come first", "is what matters", "matters the most", "is most important", "higher priority", "priorities", "more weight",
        "priority order", "in order of priority", "ranks first", "focus on", "wins", "care more about", "care about", "cares more about", "care most about", "matter more", "matters more",
    ),
    "over": (
        "ahead of", "rather than", "more important than", "matters more than", "priority over", "precedence over",
        "is more important than", "matter more than", "trumps", "beats", "at the expense of", "takes priority over",
        "takes precedence over", "in favour over", "instead of optimising", "is worth more than", "outranks", "wins over",
        "even at the expense of", "higher priority than", "has priority over", "comes before", "come before", "goes before",
        "preferred over", "preferred to", "then", "followed by", "and then", "than", "gets priority over", "get priority over",
        "have priority over",
    ),
    "under": (
        "less important than", "matters less than", "lower priority than", "yields to", "after", "comes after", "behind", "come after",
        "is less important than", "secondary to", "second to", "loses to", "takes a back seat to",
    ),
    "sacrifice": ("sacrifice", "trade", "trade off", "give up", "sacrificing", "trading"),
}  # fmt: skip

RECONFIGS = (
    "reconfigure", "reconfiguration", "reconfigurations", "reconfigures", "reconfiguring", "reconfig", "reconfigs", "reshape", "reshapes",
    "reshaping", "topology change", "topology changes", "topology switch", "topology switches", "change of topology", "switches",
    "switching", "change the topology", "changing the topology", "change topology", "switch topology", "switch topologies",
    "switch the topology", "switching topology", "changes", "config changes", "configuration changes", "live switches", "live switch",
    "reconfigured", "touch the topology", "re configure", "reshuffle", "reshuffles", "re shape", "switch over", "restructure",
    "reconfiguration of the service", "topology moves", "resharding", "reshard", "reshards", "modify the topology", "reshapes itself",
    "change the configuration", "change the layout", "layout changes", "change layout", "the service changes", "change anything",
    "touch anything", "the topology", "topology", "change the setup", "switchovers", "live reconfiguration", "live reconfigurations",
)  # fmt: skip

_TABLES: Mapping[Kind, Mapping[Any, Any]] = {
    Kind.METRIC: METRICS,
    Kind.STAT: STATS,
    Kind.COMPARISON: COMPARISONS,
    Kind.WINDOW: WINDOWS,
    Kind.SETTING: SETTINGS,
    Kind.COUNTED: COUNTED,
    Kind.OPTIMISE: OPTIMISATIONS,
    Kind.VAGUE: VAGUE,
    Kind.CHANGE: CHANGES,
    Kind.FACTOR: FACTORS,
    Kind.PRECISION: PRECISIONS,
    Kind.WORKLOAD: WORKLOADS,
    Kind.PRIORITY: PRIORITIES,
    Kind.RECONFIG: {None: RECONFIGS},
    Kind.QUALITY: {
        "quality": ("quality", "accuracy", "answer quality", "output quality", "model quality", "response quality"),
    },
    Kind.CHEAPEST: {None: _CHEAPEST},
    Kind.QUANTISE: {
        None: ("quantise", "quantize", "quantisation", "quantization", "quantised", "quantized", "quantising", "quantizing", "quant",
               "quantized weights", "quantised weights"),
    },
    Kind.EXCEPT: {
        None: (
            "except", "except for", "excluding", "other than", "apart from", "aside from", "with the exception of", "exempt",
            "exempted", "is exempt", "are exempt", "is exempt from", "are exempt from", "exempt from", "but not for", "but not",
            "does not apply to", "doesn't apply to", "do not apply to", "don't apply to", "need not meet", "needn't meet",
            "does not have to meet", "do not have to meet", "don't have to meet", "doesn't have to meet", "exception",
            "an exception", "exception for", "exceptions", "is excluded", "are excluded", "excluded", "exempted from", "not bound by",
            "is not bound by", "are not bound by", "isn't bound by", "aren't bound by", "not counting", "is excluded from",
            "are excluded from", "not including", "does not count for", "doesn't count for", "no limit for", "no bound for",
            "ignores", "can ignore", "may ignore", "need not respect", "don't need to meet", "doesn't need to meet",
            "do not need to meet", "does not need to meet", "is an exception", "are an exception", "doesn't hold for",
            "does not hold for", "exclude", "need not hold", "can break", "may break", "can miss", "may miss", "can violate",
            "may violate", "are free from", "is free from", "are not subject to", "is not subject to", "needn't hold",
        ),
    },
    Kind.MAY: {
        None: (
            "may", "can", "could", "are allowed to", "is allowed to", "be allowed to", "allowed to", "are permitted to",
            "is permitted to", "permitted to", "let", "it's ok if", "it's fine if", "it is ok if", "it is fine if", "ok if", "fine if",
            "might", "are ok to", "is ok to", "have permission to",
        ),
    },
    Kind.ALLOW: {
        None: (
            "is fine", "are fine", "fine", "is ok", "are ok", "is okay", "are okay", "acceptable", "is acceptable", "are acceptable",
            "is allowed", "are allowed", "allowed", "allow", "allows", "permit", "permitted", "is permitted", "are permitted",
            "may use", "can use", "may be used", "can be used", "ok to use", "okay to use", "fine to use", "is possible", "tolerable",
            "is good enough", "good enough", "you may use", "you can use", "we can use", "we can live with", "can live with",
            "would be fine", "would be ok", "is alright", "feel free to use", "tolerate", "are good enough", "works too", "is tolerable", "ok", "okay",
            "we can tolerate", "permissible", "we can accept", "i'm ok with", "we're ok with", "we are ok with", "ok with", "fine with",
        ),
    },
    Kind.AVOID: {
        None: (
            "avoid", "avoiding", "forbid", "forbids", "forbidden", "ban", "banned", "disallow", "disallowed", "prohibit", "prohibited",
            "is forbidden", "are forbidden", "is banned", "are banned", "stop using", "keep off", "stay off", "stay away from", "off limits",
            "keep away from", "is off limits", "are off limits", "not allowed", "is not allowed", "are not allowed", "isn't allowed",
            "aren't allowed", "is off the table", "off the table", "evict", "drain", "move off", "take off the", "out of bounds",
            "exclude the", "keep out of", "refrain from", "steer clear of", "not acceptable", "is not acceptable", "unacceptable",
            "is unacceptable", "mustn't be used", "must not be used", "is not ok", "not ok", "isn't ok", "not permitted", "is not permitted",
            "is a no go", "no go", "are not acceptable", "not fine", "is not fine", "hold off", "off", "refuse",
        ),
    },
    Kind.FREEZE: {
        None: (
            "leave alone", "alone", "don't touch", "do not touch", "hands off", "freeze", "frozen", "untouched", "as is", "as it is",
            "as they are", "never touch", "keep unchanged", "unchanged", "must not be touched", "mustn't be touched", "lock", "pin down",
            "not to be touched", "should not be touched", "shouldn't be touched", "don't mess with", "do not mess with", "don't move",
            "do not move", "locked", "do not change", "don't change", "must not change", "mustn't change", "dont touch", "nobody touches",
        ),
    },
    Kind.SOFT: {
        None: (
            "ideally", "preferably", "if possible", "try to", "where possible", "best effort", "nice to have", "would be nice", "prefer",
            "preferred", "hopefully", "aim for", "when possible", "if you can", "if at all possible", "as a soft target", "soft", "softly",
            "soft target", "soft goal", "prefers", "aim to", "would prefer", "should ideally", "if we can", "where you can",
            "would be good", "it would be nice", "aim at", "preference for", "preferring", "on a best effort basis", "if feasible",
            "when feasible", "would be great", "try and", "try for", "shoot for",
        ),
    },
    Kind.REPORT: {
        None: (
            "what", "what's", "why", "how", "how much", "how many", "who", "was", "were", "yesterday", "had been",
            "has been", "have been", "last night", "last week", "show", "show me", "tell me", "explain", "is it", "currently at", "saw",
            "show us", "we're seeing", "we are seeing", "seeing", "noticed", "last month", "looks like",
            "this morning we", "too high", "too slow", "a bit high", "is high", "is too much", "too low", "too expensive", "has been slow", "what is", "what are", "how do", "how is", "how are", "where", "could you explain", "report", "went",
            "any idea", "was at", "dropped to", "jumped to", "hit", "hits", "spiked to", "spiked",
            "currently sits at", "currently running at", "increased to", "what was", "graph", "dashboard", "alert", "page me", "notify me",
            "alert me", "notify", "remind me", "tell us", "let me know", "log", "i think", "summarize", "summarise", "describe", "list",
            "has dropped", "has risen", "rose to", "fell to", "went up", "went down", "it took", "took", "jumped", "we had",
            "we've seen", "has gone up", "got worse", "has increased", "dropped", "climbed", "exceeded", "crossed", "degraded", "regressed", "write",
            "poem", "joke", "sing", "translate", "def", "return", "import", "burning", "grew", "breached", "violated", "stayed", "kubectl", "print",
            "drop table", "curl", "sudo", "select *", "lol", "weather", "lunch", "coffee", "restarted", "ago", "deployed yesterday", "crashed",
        ),
    },
    Kind.BECAUSE: {
        None: (
            "because", "since", "so that", "as the customers", "due to", "because of", "otherwise people", "given that", "in order to",
            "for the demo", "to keep customers happy", "thanks to", "as we promised", "per the contract", "according to", "as agreed with",
            "as discussed", "as promised", "as agreed", "in case", "per our sla", "as per",
        ),
    },
    Kind.LIMITING: {
        None: (
            "unless", "if", "when", "whenever", "until", "till", "before", "otherwise", "or", "instead", "instead of", "else",
            "either", "as long as", "only if", "provided", "assuming", "even if", "only when", "as soon as", "roughly", "about",
            "around", "approximately", "circa", "almost", "somewhere", "maybe", "perhaps", "not sure", "~", "probably", "sometimes",
            "usually", "mostly", "nearly", "ish", "or so", "kind of", "sort of", "more or less", "in case of", "however", "possibly",
            "eventually", "gradually", "temporarily", "later", "soon", "for now", "depending on", "depends", "whichever", "unlike", "as much as",
        ),
    },
    Kind.NOW: {
        None: (
            "now", "today", "than now", "than today", "compared to now", "compared with now", "compared to today", "of current", "current",
            "currently", "present", "the current value", "of the current", "than it is now", "than currently", "of what it is now",
            "of the present value", "than before", "right now", "vs now", "versus now", "versus today", "vs today", "relative to now",
            "compared to current", "than at present", "of today's", "today's", "from now", "from the current", "relative to today",
            "compared to the current", "than what we have now", "from where it is", "from current", "the present value", "of now", "at present",
            "of today", "compared with today", "from today's", "than we have now", "from what it is now", "from today",
        ),
    },
    Kind.ONLY: {None: ("only", "solely", "exclusively", "just", "nothing but", "purely", "strictly", "stick to", "nothing else")},
    Kind.SAME: {None: ("same", "the same", "likewise", "ditto", "same for", "the same for", "same goes for", "the same goes for", "same thing for")},
    Kind.MORE: {None: ("extra", "on top", "of the bound", "of the limit", "of the budget", "times the limit", "times the bound", "overrun", "over budget",
                       "over the limit", "above the limit", "above the bound", "over the bound", "above budget", "beyond it", "additional",
                       "above it", "above that", "over it", "over that", "the bound", "the limit")},
    Kind.TIMES: {None: ("times", "x", "fold", "×")},
    Kind.BY: {None: ("by", "by another", "by at least", "by up to", "by about")},
    Kind.TO: {"": ("to", "into")},
    Kind.PER_USER: {None: [f"{per} {one}" for per, one in product(
        ("/", "per", "for each", "for every", "each", "every"),
        ("user", "stream", "request", "session", "client", "conversation", "active user", "customer", "single user", "concurrent user"))]},
    Kind.THING: {
        "tokens": ("token", "tokens", "tok", "toks", "output tokens"),
        "requests": ("request", "requests", "req", "reqs", "queries", "query", "calls", "call", "responses", "prompts", "answers", "them",
                     "replies"),
    },
    Kind.AUDIENCE: {None: ("user", "users", "customer", "customers", "client", "clients", "tenant", "tenants", "tier", "tiers", "plan",
                           "accounts", "account", "subscribers", "members", "people", "folks", "org", "orgs")},
    Kind.BETWEEN: {None: ("between", "in the range of", "in the range", "range", "somewhere between", "anywhere from", "from")},
    Kind.CURRENCY: {
        "USD": ("$", "usd", "us$", "dollar", "dollars", "bucks", "us dollars", "buck", "u.s. dollars", "usds"),
        "other": ("€", "eur", "euro", "euros", "¥", "rmb", "cny", "yuan", "£", "gbp", "pounds", "jpy", "yen"),
    },
    Kind.CENT: {0.01: ("cent", "cents", "¢")},
    Kind.MULTIPLIER: {1e3: ("k", "thousand", "grand"), 1e2: ("hundred",), 1e6: ("million", "mln", "mio"), 1e9: ("billion",)},
    Kind.NEGATION: {None: _words(
        "not no never don't doesn't didn't mustn't shouldn't can't cannot won't isn't aren't nor without neither wouldn't nothing "
        "none dont cant wont couldn't stop nobody noone"
    )},
    Kind.JOIN: {
        "and": ("and", "&", "as well as", "plus also", "along with", "together with", "and also", "and to", "and keep"),
        ",": (",", "but", "while", "whilst", "plus", "also", "with", "+", "yet", "whereas", "additionally", "meanwhile", "|",
              "but also", "moreover", "furthermore", "·", "•", "at the same time", "and at the same time", "though", "although"),
        ":": (":", "->", "→"),
    },
    Kind.STOP: {";": (";",), ".": (".", "!", "?", "\n")},
}  # fmt: skip

_NUMBER_WORDS = {
    word: float(value)
    for value, word in enumerate(_words(
        "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
        "seventeen eighteen nineteen twenty"
    ))
} | {
    "thirty": 30.0, "forty": 40.0, "fourty": 40.0, "fifty": 50.0, "sixty": 60.0, "seventy": 70.0, "eighty": 80.0, "ninety": 90.0,
    "half a": 0.5, "half an": 0.5, "half": 0.5, "single": 1.0, "a quarter of a": 0.25, "a quarter": 0.25, "a third": 1 / 3, "quarter of a": 0.25,
    "a dozen": 12.0, "a half": 0.5, "three quarters of a": 0.75, "one and a half": 1.5, "two and a half": 2.5, "three and a half": 3.5,
    "a second and a half": 1.5, "a couple of": 2.0, "a couple": 2.0, "a fifth": 0.2, "a tenth": 0.1, "an eighth": 0.125, "a single": 1.0,
    "four and a half": 4.5, "one half": 0.5, "three quarters": 0.75, "two thirds": 2 / 3, "a fourth": 0.25,
}  # fmt: skip

_FILLERS = _words(
    "so us "
    "a an the this that these those it its it's is are be been being will shall should must would do "
    "i we you he she our my your they them their there all any each every both keep keeps keeping kept hold holds holding "
    "held stay stays staying remain remains make makes sure ensure ensures guarantee guarantees guaranteed maintain maintained "
    "set setting sets settings have has having get gets getting got want wants wanted need needs needed like please "
    "lets let's run runs running use uses using used switch go goes going move moves moving change put puts serve serves served serving "
    "of at in on for as than during target targets targeting goal goals objective objectives slo slos sla slas limit limits limiting "
    "bound bounds bring brings fall value values equal possible leave hold response responses service services system systems model models llm engine ok okay "
    "thanks thank hey hi hello team guys all morning folks yo pls plz kindly cheers dear thx ty regards best "
    "period periods take takes taking last lasts topology's assumed across window windows ' \" ( ) [ ] ` * # { } < _ \\ "
    "level levels traffic load loads workload workloads job jobs production prod staging cluster node gpu's overall total hard "
    "now on here per that's which's who whose well really very still even ever own come comes start starts "
    "always-on strict strictly absolutely definitely certainly simply basically actually right properly well safely "
    "expect expects expected require requires required requirement requirements deliver delivers provide provides see sees "
    "customer-facing care about sure would like give gives given some such within-budget measured observed over-all p "
    "spec specs contract promise promised rule rules policy policies quota say says said new important critical urgent asap "
    "every-body fyi btw note nb re todo task ticket jira action item update boss management finance product request requests "
    "answer answers arrive arrives arrived complete completes completed finish finishes finished done begin begins start started see seen "
    "come generate generates generating produce produces stream streams streaming streamed speed-wise reach reaches achieve achieves hits "
    "sustain sustains handle handles support supports process processes exceedance capable able to-do spend capacity "
    "allocate allocated assign assigned send sent route routed routes place placed places live lives host hosted hosts goes "
    "deploy deployed schedule scheduled pin pinned stick sticks belong belongs "
    "number numbers amount degree count percentage percent-wise fraction metric metrics latency-wise "
    "above-mentioned following follows please-keep make-sure what-ever whatever happens matter matters "
    "higher-is-better allowed-to experience experiences suffer complain complaining angry happy unhappy dashboards tokens token tps-wise "
    "precision weights format formats numerics dtype quantisation-level kv cache data type types "
    "for-all hour-by-hour today-and-tomorrow time times tonight's i'd i'm we'd we're we'll it'll let's they'd you'd we've i've "
    "under-load again more-over therefore thus hence instead-of sometime much many lot lots bit little quite too either-way "
    "minimum-wise up down out back through per-se onwards forward around-here going-forward "
    "default bare regardless respectively everything total aggregate combined altogether sum overall fleet wide fleet-wide globally global service-wide "
    "please-ensure kindly-ensure attention remember heads just-in-case hope can't-wait "
    "as-well reading readings interval width via prefix prefixes size "
    "operations operation ops sre oncall on-call request-level user-level p-level customers' users' user's customer's "
    "decree wish wishes desire constraint constraints condition conditions criteria criterion target's value's "
    "let-s keep-it do-not-exceed shape configuration config setup layout "
    "us me him her so-called everyone's damn hell bloody freaking um uh er hmm anything something nothing's thing things folks' friends colleagues guys' thanks! cheers! hiya greetings regards! sincerely yours best! inference serving deployment cluster platform stack discussion procurement meeting call review agreement contractually per-contract clients' customer's sake ask asks asked asking told tell us said says mention mentioned discussed agreed confirmed decided approved-by according stick happens going keeping letting simple simply kindly honest honestly obviously clearly frankly finally initially firstly secondly thirdly lastly next really truly fully entirely completely totally generally normally typically consistently reliably constantly continuously permanently currently-running within-limits fine-tuned strictly firmly tightly closely exactly-as tonight's week's month's quarter q1 q2 q3 q4 launch release rollout go-live event demo campaign sale sales season holiday holidays traffic's wave surge finance's cfo cto ceo vp pm pms sres engineers engineer ops' devops manager managers leadership exec execs stakeholders legal compliance goodness sake ensure-that so-called i'll you'll they'll "
)  # fmt: skip


_THAN = {"lower": "<=", "less": "<=", "shorter": "<=", "smaller": "<=", "fewer": "<=", "higher": ">=", "more": ">=", "larger": ">=",
         "better": "better", "faster": "better", "quicker": "better"}  # fmt: skip
_NOWS = ("now", "today", "it is now", "it is today", "currently", "what we have now", "before", "at present", "the current value", "current",
         "what it is now", "right now", "the present value", "the current one", "the current level", "we have now")  # fmt: skip
_EVERYONE = ("everyone", "everybody", "all users", "all tenants", "all customers", "every user", "every tenant", "every customer",
             "all of our users", "all our users", "all our customers", "all clients")  # fmt: skip
_PLEASANTRIES = (
    "good morning", "good evening", "good afternoon", "good day", "for god's sake", "for heaven's sake", "thanks a lot", "many thanks",
    "best regards", "kind regards", "as soon as possible", "happy friday", "feel free to", "following up on", "following up", "as a reminder", "quick one", "quick note", "just a reminder", "just so you know", "per our discussion", "in line with", "in accordance with", "with respect to", "with regard to", "regarding", "concerning", "when it comes to", "in terms of", "as for", "as far as", "on behalf of", "to our", "in advance", "thank you", "of course", "by the way",
    "please and thank you", "no later than today", "at the moment", "in production", "from now on", "going forward", "at any rate", "heads up",
    "this one", "that one", "the one", "each one", "any one", "get by with", "get by on", "so that day", "for this one", "damn it", "good night", "happy to help", "much appreciated", "no exceptions", "no matter what", "if you don't mind", "would be great if you could",
    "one more thing", "last thing", "first of all", "as always", "as usual", "in general", "at least that's what they asked for", "no excuses",
    "the boss says", "i want you to", "we need to", "please make sure", "you know", "a lot", "at this point", "as requested", "hi all",
    "as the", "with the", "such that", "to be", "it should be", "on the whole", "in total", "at a time", "in parallel", "in the cluster",
    "it's important that", "it is important that", "it is critical that", "what i want is", "what we need is", "what we want is", "what i need is",
    "all we need is", "here is what we need", "here's what we need", "here's the deal", "if you would", "so please", "so let's", "per gpu card",
)  # fmt: skip


def entries() -> Iterator[tuple[str, Kind, Any]]:
    """Phrase, kind and meaning; a later entry of a phrase replaces an earlier one."""
    yield from ((phrase, Kind.FILLER, phrase) for phrase in _PLEASANTRIES)
    yield from ((phrase, Kind.TENANT, EVERYONE) for phrase in _EVERYONE)
    for word in _FILLERS:
        if "-" not in word:
            yield word, Kind.FILLER, word
    yield from _unit_entries()
    for kind, table in _TABLES.items():
        for meaning, phrases in table.items():
            yield from ((phrase, kind, phrase if meaning is None else meaning) for phrase in phrases)
    yield from ((f"at {phrase}", Kind.WINDOW, "peak") for phrase in WINDOWS["peak"])
    for name, phrases in WINDOWS.items():
        if name != "always":
            yield from ((f"during {phrase}", Kind.WINDOW, name) for phrase in phrases)
            yield from ((f"during the {phrase}", Kind.WINDOW, name) for phrase in phrases)
            yield from ((f"in {phrase}", Kind.WINDOW, name) for phrase in phrases)
    for period, names in _PERIODS.items():
        yield from ((f"{per} {name}", Kind.PERIOD, period) for per, name in product(_PER, names))
    for word, side in _THAN.items():
        yield from ((f"{word} than {now}", Kind.CHANGE, side) for now in _NOWS)
    yield from ((word, Kind.PERIOD, period) for word, period in (("hourly", "h"), ("daily", "day"), ("monthly", "month"), ("weekly", "week")))
    yield from ((word, Kind.NUMBER, value) for word, value in _NUMBER_WORDS.items())
    yield from ((word, Kind.TIMES_SAID, value) for word, value in (("once", 1.0), ("twice", 2.0), ("thrice", 3.0), ("one time", 1.0)))
    for count, word in enumerate(("two", "three", "four", "five", "six"), start=2):
        yield f"{word} nines", Kind.QUANTITY, count


def _unit_entries() -> Iterator[tuple[str, Kind, Any]]:
    for factor, names in _SECONDS.items():
        yield from ((name, Kind.UNIT, ("s", factor)) for name in names)
        for name, per, token in product(names, _PER, ("tok", "token", "output token")):
            yield f"{name} {per} {token}", Kind.UNIT, ("s/token", factor)
        if factor >= 1.0:
            seconds = (*names, "min") if factor == 60.0 else names
            for unit, nouns in (("tokens/s", _TOKENS), ("requests/s", _REQUESTS)):
                for noun, per, name in product(nouns, _PER, seconds):
                    yield f"{noun} {per} {name}", Kind.UNIT, (unit, 1 / factor)
    yield "tps", Kind.UNIT, ("tokens/s", 1.0)
    yield from ((name, Kind.UNIT, ("requests/s", 1.0)) for name in ("rps", "qps"))
    yield from ((name, Kind.UNIT, ("requests/s", 1 / 60)) for name in ("rpm", "qpm"))
    yield "tpm", Kind.UNIT, ("tokens/s", 1 / 60)
    yield from ((name, Kind.UNIT, ("ratio", 0.01)) for name in ("%", "percent", "per cent", "pct", "percents"))
    yield from ((name, Kind.UNIT, ("points", 0.01)) for name in ("percentage points", "percentage point", "pp points", "% points", "points"))
