"""How much one request may ask for, and how long anything may take."""

from dataclasses import dataclass, fields

from regard.errors import ConfigError
from regard.tasks.verbs import RequestLimits

PLACE = 1 << 20
"""Bytes of a request that takes one place of a queue."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits(RequestLimits):
    """What a server grants.

    - A request has at most `body` bytes, by default as many as what is served needs: for texts a mebibyte, for images
      and sounds more. How much it may ask for is said by `RequestLimits`.
    - `queue` requests may wait for one model; one more is refused at once. One of more than a mebibyte takes the place
      of as many as it has mebibytes, so that the memory of those that wait is bounded whatever they hold.
    - A batch has at most `batch_tokens` tokens of input unless one request alone has more. While
      several clients ask, a batch waits up to `batch_wait` seconds for those just answered to ask again.
    - A request is given up `timeout` seconds after it came. A server that is told to stop has `grace` seconds to
      finish.
    - At most `connections` are open at a time, and fewer if the process may not open so many files. The head of a
      request must come within `header_timeout` seconds, and between two requests `idle_timeout` seconds may pass.
    """

    body: int | None = None
    queue: int = 256
    batch_tokens: int = 4096
    batch_wait: float = 0.005
    timeout: float = 60.0
    grace: float = 20.0
    connections: int = 2000
    header_timeout: float = 10.0
    idle_timeout: float = 30.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value, may_be_nothing = getattr(self, field.name), field.name in ("batch_wait", "grace")
            if value is None:
                continue
            if not 0 <= value < float("inf") or (value == 0 and not may_be_nothing):
                raise ConfigError(f"{field.name}={value} must be {'0 or more' if may_be_nothing else 'above 0'}")

    def places(self, size: int) -> int:
        """How many places of a queue a request of so many bytes takes."""
        return max(1, -(-size // PLACE))
