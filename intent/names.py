"""The names of a deployment as people say them.

Whole names first, in any case, as a plural or by an alias. Pure.
"""

import re
from collections.abc import Iterable, Mapping

from intent.fold import fold
from intent.models import Catalogue

_AROUND = frozenset(
    [
        "the", "our", "all", "for", "tenant", "tenants", "customer", "customers", "user", "users", "client", "clients",
        "account", "accounts", "tier", "plan", "traffic", "request", "requests", "job", "jobs", "work", "model", "models",
        "node", "nodes", "host", "hosts", "machine", "machines", "box", "boxes", "server", "servers", "gpu", "gpus", "card",
        "cards",
    ]
)  # fmt: skip
"""Words beside a name that say only what kind of thing it names."""
_HAN_AROUND = re.compile("租户|用户|客户|流量|请求|业务|模型|节点|机器|服务器|显卡|卡|上|的|那台|那些|这台")
_WORD = re.compile(r"[a-z0-9]+(?:[._][a-z0-9]+)*|[\u3400-\u9fff]+")
_DEVICE = re.compile(r"(?:gpu|card|device|卡)\s*[-#_]?\s*(\d{1,3})|(\d{1,3})\s*号\s*(?:gpu|卡)")


def tenant(words: str, catalogue: Catalogue) -> str | None:
    """The tenant that is meant; None if nobody has the name."""
    aliases = {alias: name for alias, name in catalogue.aliases.items() if name in catalogue.tenants}
    return _named(words, catalogue.tenants, aliases)


def model(words: str, catalogue: Catalogue) -> str | None:
    """The model that is meant; None if none has the name."""
    aliases = {alias: name for alias, name in catalogue.aliases.items() if name in catalogue.models}
    return _named(words, catalogue.models, aliases)


def selector(words: str, catalogue: Catalogue) -> str | None:
    """``gpu_type:A100``, ``gpu:gpu-3`` or ``node:a``: the devices that are meant.

    None if nothing here has the name.
    """
    if node := _named(words, catalogue.nodes, {}):
        return f"node:{node}"
    if device := _DEVICE.search(fold(words).text):
        return f"gpu:gpu-{int(device[1] or device[2])}"
    kind = _named(words, catalogue.gpu_kinds, {})
    return f"gpu_type:{kind}" if kind else None


def _named(words: str, names: Iterable[str], aliases: Mapping[str, str]) -> str | None:
    """The name whose words these are.

    All of them, then without what stands around a name, then in the singular.
    """
    known = {_key(_words(alias)): name for alias, name in aliases.items()}
    known |= {_key(_words(name)): name for name in names}
    spoken = _words(words)
    bare = [word for word in spoken if word not in _AROUND] or spoken
    for candidate in (spoken, bare, [word.removesuffix("s") for word in bare]):
        if candidate and (found := known.get(_key(candidate))):
            return found
    return None


def _key(words: Iterable[str]) -> str:
    return " ".join(words)


def _words(words: str) -> list[str]:
    text = re.sub(r"'s\b|(?<=s)'", "", fold(words).text)
    whole = _WORD.findall(text.replace("_", " "))
    return whole if len(whole) > 1 or text.isascii() else _WORD.findall(_HAN_AROUND.sub(" ", text)) or whole
