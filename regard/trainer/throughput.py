"""How fast a training goes: tokens per second, and the shares of waiting and of padding."""

import time
from collections.abc import Sequence
from typing import Any

from regard.nn.batch import padding


class Throughput:
    """Tokens per second of training alone, validation and saving left out; and what of it was waiting for data, and
    what of the batches is padding."""

    def __init__(self) -> None:
        self.tokens, self.waited = 0, 0.0
        self._hidden = self._places = 0
        self._since, self._paused, self._trained = time.monotonic(), 0.0, 0.0

    def add(self, tokens: int, batches: Sequence[Any]) -> None:
        """Note an update of so many tokens in all, of which these batches are this process's."""
        self.tokens += tokens
        for batch in batches:
            hidden, places = padding(batch)
            self._hidden, self._places = self._hidden + hidden, self._places + places

    def pause(self, seconds: float) -> None:
        """Leave so many seconds out."""
        self._paused += seconds

    def read(self) -> dict[str, float]:
        """The speed since the last lap, and the seconds trained in all."""
        seconds = self._seconds(time.monotonic())
        return {"tokens_per_second": round(self.tokens / seconds, 1), "seconds": round(self._trained + seconds, 2)}

    def lap(self) -> dict[str, float]:
        """The same with the shares of waiting and padding, and a new lap begins."""
        now = time.monotonic()
        seconds, values = self._seconds(now), self.read()
        values["waiting"] = round(min(1.0, self.waited / seconds), 3)
        if self._hidden:
            values["padding"] = round(self._hidden / self._places, 3)
        self._trained += seconds
        self._since, self._paused, self.tokens, self.waited = now, 0.0, 0, 0.0
        self._hidden = self._places = 0
        return values

    def _seconds(self, now: float) -> float:
        return max(1e-9, now - self._since - self._paused)
