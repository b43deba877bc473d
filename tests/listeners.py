"""Reports for tests: one that stops a training, one that remembers what it was told."""

import os
import signal

from regard.tasks.spec import Silence


class StopAt(Silence):
    """Asks training to stop, as a signal would, after hearing of a step."""

    def __init__(self, step):
        self.wanted = step

    def step(self, values, total):
        if values["step"] == self.wanted:
            os.kill(os.getpid(), signal.SIGTERM)


class Told(Silence):
    """Keeps every line."""

    def __init__(self):
        self.lines = []

    def say(self, text):
        self.lines.append(text)
