"""How long streams waited for their next token through a cut. Pure."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Gaps:
    """Of the streams that one cut moved, those that went on so far."""

    epoch: int
    """Of the cut."""
    waits_s: list[float] = field(default_factory=list)
    """From a stream's last token before to its first one under the new epoch."""
    usual_s: list[float] = field(default_factory=list)
    """The mean time between two tokens before, of each stream that had two."""

    def add(self, wait_s: float, before_s: float, num_before: int) -> None:
        """A stream went on; it had so many tokens before, the first and the last ``before_s`` apart."""
        self.waits_s.append(wait_s)
        if num_before > 1:
            self.usual_s.append(before_s / (num_before - 1))
