"""Conversations as the tokens that a chat model was trained on. Forms are built in; none is taken from a checkpoint."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from regard.errors import ConfigError, DataError, nearest
from regard.text.tokenizer import Tokenizer

ROLES = ("system", "user", "assistant")


@dataclass(frozen=True, slots=True)
class Form:
    """A message is `begin`, its role, a line break, its text, `end` and a line break; both marks are single tokens."""

    begin: str
    end: str


FORMS = {"chatml": Form("<|im_start|>", "<|im_end|>")}


@dataclass(frozen=True, slots=True)
class Message:
    role: str
    text: str

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise DataError(f"role={self.role!r} must be one of {', '.join(ROLES)}")


@dataclass(frozen=True, slots=True)
class Conversation:
    """What was said so far, to be answered: `Conversation().say("user", "Why is the sky blue?")`."""

    messages: Sequence[Message] = ()
    form: str = "chatml"

    def __post_init__(self) -> None:
        if self.form not in FORMS:
            raise ConfigError(f"unknown form of a chat '{self.form}'{nearest(self.form, FORMS)}")

    def say(self, role: str, text: str) -> "Conversation":
        """The conversation with one more message."""
        return replace(self, messages=(*self.messages, Message(role, text)))

    def ids(self, tokenizer: Tokenizer) -> list[int]:
        """All messages, and the beginning of the assistant's next. Text that spells a mark is plain text."""
        if not self.messages or self.messages[-1].role != "user":
            raise DataError("a conversation is answered after a message of the user")
        form, ids = FORMS[self.form], []
        begin, end = (self._mark(tokenizer, mark) for mark in (form.begin, form.end))
        for message in self.messages:
            said = tokenizer.encode(f"{message.role}\n{message.text}")
            ids += [begin, *said, end, *tokenizer.encode("\n")]
        return [*ids, begin, *tokenizer.encode("assistant\n")]

    def end(self, tokenizer: Tokenizer) -> int:
        """The token that ends an answer."""
        return self._mark(tokenizer, FORMS[self.form].end)

    def _mark(self, tokenizer: Tokenizer, mark: str) -> int:
        index = tokenizer.inner.token_to_id(mark)
        if index is None:
            raise DataError(f"the vocabulary has no '{mark}', which a chat of the form '{self.form}' is made of")
        return index
