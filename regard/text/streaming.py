"""Tokens to text as they come: never half a character, never a part of what is to stop the text."""

from collections.abc import Sequence

from regard.text.tokenizer import Tokenizer

_BROKEN = "\ufffd"
_CONTEXT = 8  # tokens: a piece's text depends on few before it, and a character has at most four


class TextStream:
    """The text that follows a prompt. `push` a token and get the text that is now certain, which may be none.

    The text ends before the first of the `stop` strings; `stopped` says whether one was met.
    """

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int] = (), stop: Sequence[str] = ()) -> None:
        self._tokenizer, self._stop = tokenizer, tuple(stop)
        self._window = list(prompt[-_CONTEXT:])
        self._shown = tokenizer.decode(self._window)
        self._sent = 0
        self.text = ""
        self.stopped = False

    def push(self, token: int) -> str:
        """One more token."""
        if self.stopped:
            return ""
        self._window.append(token)
        text = self._tokenizer.decode(self._window)
        # The bytes of a character that is not whole yet decode as one sign; what stands before it stays.
        certain = text[:-1] if text.endswith(_BROKEN) else text
        fresh, self._shown = certain[len(self._shown) :], certain
        if certain is text and len(self._window) > 4 * _CONTEXT:
            self._window = self._window[-_CONTEXT:]
            self._shown = self._tokenizer.decode(self._window)
        return self._send(fresh)

    def close(self) -> str:
        """No more tokens: the text that was still held back."""
        if self.stopped:
            return ""
        rest = self._send(self._tokenizer.decode(self._window)[len(self._shown) :])
        held, self._sent = self.text[self._sent :], len(self.text)
        return rest if self.stopped else rest + held

    def _send(self, fresh: str) -> str:
        # A stop string may have begun in what was held back, never before.
        began, self.text = self._sent, self.text + fresh
        places = [place for stop in self._stop if (place := self.text.find(stop, began)) >= 0]
        if places:
            self.text, self.stopped = self.text[: min(places)], True
        until = len(self.text) if self.stopped else len(self.text) - self._held()
        self._sent = until
        return self.text[began:until]

    def _held(self) -> int:
        """How many characters at the end may be the beginning of a stop string."""
        longest = max((len(stop) for stop in self._stop), default=1) - 1
        ends = range(min(longest, len(self.text) - self._sent), 0, -1)
        return next((size for size in ends if any(stop.startswith(self.text[-size:]) for stop in self._stop)), 0)
