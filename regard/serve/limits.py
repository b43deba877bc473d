"""How much one request may ask for, and how long anything may take."""

from dataclasses import dataclass, fields

from regard.errors import ConfigError


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What a server grants.

    - A request has at most `body` bytes, `texts` texts and `characters` characters in all of them. It may ask for
      `tokens` new tokens a text, and for a `beam` (or samples) so wide; texts, beam and longest output multiplied are
      at most `budget`.
    - `queue` requests may wait for one model; one more is refused at once.
    - A batch has at most `batch_tokens` tokens of input unless one request alone has more. While
      several clients ask, a batch waits up to `batch_wait` seconds for those just answered to ask again.
    - A request is given up `timeout` seconds after it came. A server that is told to stop has `grace` seconds to
      finish.
    - At most `connections` are open at a time, and fewer if the process may not open so many files. The head of a
      request must come within `header_timeout` seconds, and between two requests `idle_timeout` seconds may pass.
    """

    body: int = 1 << 20
    texts: int = 256
    characters: int = 50_000
    tokens: int = 1024
    beam: int = 16
    budget: int = 1 << 20
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
            if not 0 <= value < float("inf") or (value == 0 and not may_be_nothing):
                raise ConfigError(f"{field.name}={value} must be {'0 or more' if may_be_nothing else 'above 0'}")
