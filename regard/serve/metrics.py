"""Counts of what the server did, as Prometheus reads them.

Not by prometheus-client, which would save some 60 lines: it adds a `_created` series to every one of these unless the
whole process is told not to, keeps a gauge of models that are gone, and takes three times as long per request.
"""

import threading
from collections import defaultdict
from collections.abc import Mapping

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)

Labels = tuple[tuple[str, str], ...]


class Histogram:
    """How many values were at most each bound."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds, self.counts, self.total, self.sum = bounds, [0] * len(bounds), 0, 0.0

    def add(self, value: int | float) -> None:
        self.total, self.sum = self.total + 1, self.sum + value
        for place, bound in enumerate(self.bounds):
            self.counts[place] += value <= bound

    def lines(self, name: str, labels: Labels) -> list[str]:
        rows = [
            f"{name}_bucket{_shown((*labels, ('le', f'{bound:g}')))} {count}"
            for bound, count in zip(self.bounds, self.counts, strict=True)
        ]
        rows.append(f"{name}_bucket{_shown((*labels, ('le', '+Inf')))} {self.total}")
        return [*rows, f"{name}_sum{_shown(labels)} {self.sum:.6f}", f"{name}_count{_shown(labels)} {self.total}"]


class Metrics:
    """Counters and histograms. Names and labels are few and fixed, so they take no more memory in a year than today."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: dict[Labels, int] = defaultdict(int)
        self._tokens: dict[Labels, int] = defaultdict(int)
        self._seconds: dict[Labels, Histogram] = defaultdict(lambda: Histogram(SECONDS))
        self._sizes: dict[Labels, Histogram] = defaultdict(lambda: Histogram(SIZES))
        self._busy: dict[Labels, float] = defaultdict(float)
        self._refused_connections = 0

    def request(self, route: str, status: int, seconds: float) -> None:
        """A request was answered."""
        with self._lock:
            self._requests[("route", route), ("status", str(status))] += 1
            self._seconds[(("route", route),)].add(seconds)

    def refused_connection(self) -> None:
        """A connection was one too many."""
        with self._lock:
            self._refused_connections += 1

    def batch(self, model: str, size: int, tokens: int) -> None:
        """A batch of so many requests was taken, which have so many tokens to read."""
        with self._lock:
            self._sizes[(("model", model),)].add(size)
            self._tokens[("model", model), ("direction", "in")] += tokens

    def worked(self, model: str, seconds: float, tokens: int) -> None:
        """A model was busy for so long, and wrote so many tokens."""
        with self._lock:
            self._busy[(("model", model),)] += seconds
            self._tokens[("model", model), ("direction", "out")] += tokens

    def text(self, waiting: Mapping[str, int]) -> str:
        """All of it, with how many requests wait for each model."""
        with self._lock:
            queue = {(("model", name),): count for name, count in waiting.items()}
            parts = [
                _plain("regard_requests_total", "counter", "Requests answered.", self._requests),
                _histogram("regard_request_seconds", "Time from request to answer.", self._seconds),
                _plain("regard_queue_length", "gauge", "Requests that wait for a model.", queue),
                _histogram("regard_batch_requests", "Requests done together.", self._sizes),
                _plain("regard_tokens_total", "counter", "Tokens read and written.", self._tokens),
                _plain(
                    "regard_refused_connections_total",
                    "counter",
                    "Connections for which there was no room.",
                    {(): self._refused_connections},
                ),
                _plain("regard_busy_seconds_total", "counter", "Time a model was at work.", self._busy),
            ]
        return "".join(f"{line}\n" for part in parts for line in part)


def _plain(name: str, kind: str, about: str, values: Mapping[Labels, int] | Mapping[Labels, float]) -> list[str]:
    return [f"# HELP {name} {about}", f"# TYPE {name} {kind}"] + [
        f"{name}{_shown(labels)} {value:.3f}" if isinstance(value, float) else f"{name}{_shown(labels)} {value}"
        for labels, value in sorted(values.items())
    ]


def _histogram(name: str, about: str, values: Mapping[Labels, Histogram]) -> list[str]:
    rows = [
        line for labels, one in sorted(values.items(), key=lambda item: item[0]) for line in one.lines(name, labels)
    ]
    return [f"# HELP {name} {about}", f"# TYPE {name} histogram", *rows]


def _shown(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
