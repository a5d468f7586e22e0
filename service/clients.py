"""What the service grants its clients.

How large a request may be, and how long they may take over it and its answer.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from service.located_yaml import LocatedYaml, Section

BYTES_PER_TOKEN = 16
"""Of the longest prompt, as JSON: four times what a token has, for other scripts, token ids and what is said around it."""
LEAST_BODY_BYTES = 262_144
SHARE = 0.75
"""Of the connections, which one address may have, and of the requests under way, which one key may have."""


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """Bounds on requests, connections and patience."""

    max_body_bytes: int = LEAST_BODY_BYTES
    """Of a request; JSON of that size is read in some 10 ms."""
    max_connections: int = 800
    """At once; every one is an open file of this process."""
    max_connections_per_address: int = 600
    """Of them from one address; a proxy's counts as one."""
    max_requests_per_key: int = 600
    """Under way at once with one key, event streams among them."""
    head_timeout_s: float = 10.0
    """From the first byte of a request, or a new connection, to the end of its headers."""
    body_timeout_s: float = 30.0
    """From there to the end of its body."""
    unread_timeout_s: float = 30.0
    """For a client that takes nothing of its answer, or is not there any more."""
    recovery_timeout_s: float = 60.0
    """For a stream whose engine was lost, until it goes on; with 0 it ends with an error at once."""
    stop_timeout_s: float = 25.0
    """For what is under way when the service is told to stop; less than Kubernetes waits."""


def read_clients(source: LocatedYaml, contexts_tokens: Sequence[int]) -> ClientLimits:
    """What the file says under ``clients``.

    Where it does not, the size of a body follows the longest context, and what one client may have the number
    of connections.
    """
    longest = BYTES_PER_TOKEN * max(contexts_tokens, default=0)
    given: Section = source.get(("clients",)) or {}
    share = math.ceil(SHARE * given.get("max_connections", ClientLimits().max_connections))
    usual = ClientLimits(
        max_body_bytes=max(LEAST_BODY_BYTES, longest),
        max_connections_per_address=share,
        max_requests_per_key=share,
    )
    bounds = {key: value for key, value in given.items() if key != "max_body_mb"}
    body_bytes = round(given["max_body_mb"] * 1e6) if "max_body_mb" in given else usual.max_body_bytes
    return replace(usual, max_body_bytes=body_bytes, **bounds)
