"""How fast a run trains."""

import time


class Clock:
    """Tokens a second of training alone, validation and saving left out."""

    def __init__(self) -> None:
        self.tokens = 0
        self._since, self._paused, self._trained = time.monotonic(), 0.0, 0.0

    def pause(self, seconds: float) -> None:
        """Leave so many seconds out."""
        self._paused += seconds

    def read(self) -> dict[str, float]:
        """The speed since the last lap, and the seconds trained in all."""
        seconds = self._seconds(time.monotonic())
        return {
            "tokens_per_second": round(self.tokens / seconds, 1),
            "seconds": round(self._trained + seconds, 2),
        }

    def lap(self) -> dict[str, float]:
        """The same, and a new lap begins."""
        values, now = self.read(), time.monotonic()
        self._trained += self._seconds(now)
        self._since, self._paused, self.tokens = now, 0.0, 0
        return values

    def _seconds(self, now: float) -> float:
        return max(1e-9, now - self._since - self._paused)
