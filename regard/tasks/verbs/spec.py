"""`Verb`: one thing that can be asked of a trained run, declared once.

From a declaration follow the Python method, the command with its options, help and `--json`, and the HTTP route with
its schema and its limits. Nothing here imports torch, so that help is instant.
"""

import dataclasses
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from os import PathLike
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar, get_type_hints

from regard.config import Dataclass, JsonObject
from regard.errors import ConfigError, DataError, SomeRefused, TooLarge

if TYPE_CHECKING:
    from pathlib import Path

    from regard.decode.config import DecodeConfig
    from regard.decode.stepper import Hypothesis
    from regard.tasks.run import Run
    from regard.text.tokenizer import Tokenizer


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class RequestLimits:
    """How much one request may ask of a server: so many `texts`, with so many `characters` in all of them; so many new
    `tokens` per text, and a `beam` (or samples) so wide. Texts, beam and longest output multiplied are at most
    `budget`."""

    texts: int = 256
    characters: int = 50_000
    tokens: int = 1024
    beam: int = 16
    budget: int = 1 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class Between:
    """The least and the most that a number of a request may be: declared once, checked here and told by the schema.

    `most` may name one of the server's limits. With `or_zero`, 0 is taken too, below the least; `instead` is what is
    said of any other number. A command line has the least alone: the rest guards a server.
    """

    least: int | float
    most: int | float | str
    or_zero: bool = False
    instead: str = ""

    def greatest(self, limits: RequestLimits) -> int | float:
        return getattr(limits, self.most) if isinstance(self.most, str) else self.most

    def check(self, name: str, value: int | float, limits: RequestLimits) -> None:
        most = self.greatest(limits)
        if self.least <= value <= most or (self.or_zero and value == 0):
            return
        if self.instead:
            raise ConfigError(f"{name}={value} {self.instead}")
        if value < self.least:
            raise ConfigError(f"{name}={value} must be {'0, or ' if self.or_zero else ''}at least {self.least}")
        raise ConfigError(f"{name}={value} is more than this server allows: {most}")


# Where a verb searches unless told to sample, and where it samples unless told to take the likeliest.
Temperature = Annotated[
    float | None,
    Between(0.001, 1000.0),
    "Sample instead of searching; 1 is the model's own distribution, lower is more careful.",
]
TemperatureOrZero = Annotated[
    float | None,
    Between(0.001, 1000.0, or_zero=True),
    "1 is the model's own distribution, lower is more careful; 0 takes the likeliest.",
]
TopK = Annotated[int | None, Between(1, 1 << 31), "Top-k sampling: from the k likeliest tokens."]
TopP = Annotated[
    float | None, Between(1e-6, 1.0), "Top-p sampling: from the likeliest tokens that hold this probability."
]
MinP = Annotated[
    float | None, Between(0.0, 1.0), "Min-p sampling: from tokens at least this times as likely as the likeliest."
]
Samples = Annotated[int | None, Between(1, "beam"), "How many texts to sample."]
Seed = Annotated[int | None, Between(0, (1 << 63) - 1), "The seed of the random numbers."]
LengthPenalty = Annotated[float | None, Between(0.0, 10.0)]
Beam = Annotated[int | None, Between(1, "beam")]
Tokens = Annotated[int | None, Between(1, "tokens")]
NoRepeat = Annotated[int | None, Between(0, 1 << 31)]
CoveragePenalty = Annotated[float | None, Between(0.0, 10.0)]
DiversityPenalty = Annotated[float | None, Between(0.0, 1000.0)]

PHRASES, PHRASE_LENGTH = 32, 1000
"""The most phrases that a request to a server may require or forbid, and the characters of one."""


@cache
def bounds(kind: type[Any]) -> dict[str, Between]:
    """The bounds of each field that has some."""
    hints = get_type_hints(kind, include_extras=True).items()
    return {name: one for name, hint in hints for one in getattr(hint, "__metadata__", ()) if isinstance(one, Between)}


@cache
def described(kind: type[Any]) -> dict[str, str]:
    """What the command's help says of each field: as the field has it, or else as its type does."""
    hints = get_type_hints(kind, include_extras=True)
    said = {
        name: [one for one in getattr(hint, "__metadata__", ()) if isinstance(one, str)] for name, hint in hints.items()
    }
    return {one.name: one.metadata.get("help") or "".join(said[one.name]) for one in dataclasses.fields(kind)}


def option(default: object, help: str, metavar: str | None = None) -> Any:
    """A field of a request: its default, and what the command's help says of it."""
    return dataclasses.field(default=default, metadata={"help": help, "metavar": metavar})


def unsaid(default: object = dataclasses.MISSING) -> Any:
    """A field of a result that Python has and JSON does not."""
    return dataclasses.field(default=default, metadata={"unsaid": True})


def said_if_given() -> Any:
    """A field of a result that JSON has only where it is not None: what was asked for."""
    return dataclasses.field(default=None, metadata={"unsaid_none": True})


Text = TypeVar("Text", bound="WrittenText")


@dataclasses.dataclass(frozen=True, slots=True)
class WrittenText:
    """A text that was searched for or sampled: its length-normalised score and log-probability, its tokens, and these
    as text, `pieces`.

    One that is not `finished` was cut at the greatest length that the settings, or the model, allow.
    """

    text: str
    score: float
    log_prob: float
    tokens: tuple[int, ...] = unsaid()
    pieces: tuple[str, ...] = ()
    finished: bool = True

    @classmethod
    def of(
        cls: type[Text],
        hypothesis: "Hypothesis",
        target: "Tokenizer",
        forced_at: int | None = None,
        text: str | None = None,
    ) -> Text:
        """What was decoded, as `text` where that is known.

        An output that has made `forced_at` choices was ended there by force: it is not finished.
        """
        return cls(
            text=target.decode(hypothesis.tokens) if text is None else text,
            score=hypothesis.score,
            log_prob=hypothesis.log_prob,
            tokens=tuple(hypothesis.tokens),
            pieces=tuple(target.pieces(hypothesis.tokens)),
            finished=hypothesis.finished and len(hypothesis.token_log_probs) != forced_at,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)  # without slots: two bases that have some cannot be joined
class Sampling:
    """Samples instead of the best few."""

    temperature: Temperature = None
    top_k: TopK = None
    top_p: TopP = None
    min_p: MinP = None
    samples: Samples = None
    seed: Seed = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class SamplingOptions(Sampling):
    """Other than the best few: groups of hypotheses that differ, or samples."""

    beam_groups: Beam = option(None, "Diverse beam search: groups of hypotheses, kept apart by --diversity-penalty.")
    diversity_penalty: DiversityPenalty = option(
        None, "What a choice loses for each time that an earlier group makes it in the same step."
    )


def search_key(config: "DecodeConfig") -> "DecodeConfig":
    """What searches that can go together have in common. A seed matters to sampling only."""
    return config if config.sampled else dataclasses.replace(config, seed=0)


def search_rows(config: "DecodeConfig") -> int:
    """How many hypotheses one input has at a time."""
    return max(config.beam, config.samples, config.mbr)


def check_constraints(request: Any, limits: RequestLimits | None) -> None:
    """Refuse more phrases to begin with, to have or not to have than a server takes, and longer ones."""
    for name in ("prefix", "require", "forbid"):
        check_phrases(name, getattr(request, name, None) or (), limits)


def check_search(config: "DecodeConfig", count: int, unit: str, limits: RequestLimits | None) -> None:
    """Refuse a search of so many inputs that would take too long."""
    rows = search_rows(config)
    said = f"{count} {unit} x {rows} hypotheses x {config.max_len} tokens"
    check_budget(limits, count * rows, config.max_len, said)


@dataclasses.dataclass(frozen=True, eq=False)
class Asked:
    """One input, as `Verb.check` gave it, of a request; `number` is its place among the request's inputs, from 0."""

    request: Any
    item: Any
    number: int = 0


Pull = Callable[[], Sequence[Asked]]
"""What is asked by now, as much of it as there is room for; nothing where nobody asks."""

Request = TypeVar("Request", bound=Dataclass)
Result = TypeVar("Result")

Told = Sequence[tuple[Asked, Any]]
"""What a step of the model brought: pieces, results, and an exception where one request alone has failed."""


@dataclasses.dataclass(frozen=True, slots=True)
class RefusedInput:
    """One of several inputs of a command that cannot be read or answered: what it is called, and why."""

    name: str
    error: DataError

    @classmethod
    def of(cls, item: Any, error: DataError) -> "RefusedInput":
        """An input as a command line or `Verb.check` gave it."""
        called = item if isinstance(item, str | PathLike) else getattr(item, "name", "")
        if isinstance(item, tuple) and len(item) == 2 and isinstance(item[1], bytes):
            called = item[0]
        return cls(str(called), error.with_traceback(None))  # whose frames would keep what was read


@dataclasses.dataclass(frozen=True, slots=True)
class Cost:
    """How many tokens a model reads for an input, and how many it may write."""

    read: int
    write: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verb(Generic[Request, Result]):
    """One thing to ask of a run.

    `request` is a dataclass: its field named `items` holds the inputs, one or several, the others are options. `result`
    is what is said of one input, and `piece` what is said of it before it is whole. `help` is the command's; its first
    line is the summary. `command` is the command's name where it is not the verb's, `display` a dataclass of options
    that only change how the command shows a result.

    The defaults are those of a verb whose task has a method of the same name, which is given inputs and options and
    returns one result per input.
    """

    name: str
    help: str
    request: type[Any]
    items: str
    result: type[Any] = object
    piece: type[Any] | None = None
    command: str = ""
    display: type[Any] | None = None
    unit: str = "inputs"
    """What is counted."""
    reads_standard_input: bool = True
    """Whether the command takes lines of standard input where it is given nothing."""
    reads_files: bool = False
    """Whether inputs are files: one that cannot be read is then told of by its command, and the others are answered.
    Where inputs are texts, one that is refused ends it all."""
    files: tuple[str, ...] = ()
    """Options of the command that name line-aligned files, given together instead of --input: `inputs` has them all."""
    ensembles: bool = False
    """Whether several runs do it together: the command then takes --with."""
    engines: bool = False
    """Whether its command lets another engine than torch decode."""
    body: int = 1 << 20
    """Bytes that a request over HTTP may have where the server is not told: enough for what is usually sent."""
    needs: str = ""
    """What a model must have to be asked it, where not all models of its tasks do."""

    def offered(self, run: "Run") -> bool:
        """Whether this run does it: that may depend on what its model offers, and not only on its task."""
        return self.name in run.task.methods

    def reads_texts(self, run: "Run") -> bool:
        """Whether its inputs are texts themselves, not names of files that hold them."""
        return not self.reads_files

    def served(self, run: "Run") -> bool:
        """Whether it can be asked for over HTTP too."""
        return self.offered(run)

    def options(self, request: Request) -> JsonObject:
        """What the request says beside its inputs."""
        names = (field.name for field in dataclasses.fields(request) if field.name != self.items)
        return {name: getattr(request, name) for name in names}

    def inputs_of(self, request: Request) -> Sequence[Any]:
        """The inputs of a request as they were given, one or several."""
        given = getattr(request, self.items)
        return given if isinstance(given, list | tuple) else (given,)

    def without_inputs(self, **options: object) -> Any:
        """A request for inputs that are given beside it."""
        hints = get_type_hints(self.request)
        needed = [one.name for one in dataclasses.fields(self.request) if one.default is dataclasses.MISSING]
        return self.request(**{name: "" if hints[name] is str else () for name in needed}, **options)

    def check(
        self, run: "Run", request: Request, items: Sequence[Any], limits: RequestLimits | None = None
    ) -> Sequence[Any]:
        """Inputs of a request, ready to be answered. What cannot be done is refused here, before it waits and before
        it joins those of other requests. Without `limits` any number may be asked for."""
        check_count(len(items), self.items, limits, self.unit)
        check_characters([item for item in items if isinstance(item, str)], self.items, limits)
        return [self.checked(run, item) for item in items]

    def checked(self, run: "Run", item: Any) -> Any:
        """One input, ready to be answered."""
        return item

    def key(self, run: "Run", request: Request) -> Hashable:
        """Equal for requests that can be answered together. One that goes alone has a key that no other equals."""
        return tuple(sorted(self.options(request).items()))

    def cost(self, run: "Run", asked: Asked) -> Cost:
        return Cost(1)

    def answer(self, run: "Run", pull: Pull, *, gone: Callable[[Asked], bool]) -> Iterator[Told]:
        """Step by step what becomes of all that can be pulled, each as if it were alone.

        Every request pulled has one result in the end, or an exception; those that are `gone` may have none. Ends when
        nothing is under way and nothing more can be pulled.
        """
        while asked := list(pull()):
            yield list(zip(asked, self._apart(run, asked, gone), strict=True))

    def _apart(self, run: "Run", asked: Sequence[Asked], gone: Callable[[Asked], bool]) -> Sequence[Any]:
        """A result for each, or its error: where some fail together, halves are tried until those are found."""
        try:
            return self.together(run, asked, gone)
        except DataError as error:
            if not self.reads_files:
                raise
            if len(asked) == 1:
                return [error]
        middle = len(asked) // 2
        return [*self._apart(run, asked[:middle], gone), *self._apart(run, asked[middle:], gone)]

    def together(self, run: "Run", asked: Sequence[Asked], gone: Callable[[Asked], bool]) -> Sequence[Any]:
        """A result for each of these, whose requests have one key: for a verb that answers by whole batches. What
        cannot be read or answered has its error in the place of a result, or is found out where one is raised."""
        options = self.options(asked[0].request)
        return run.task.methods[self.name](run, [one.item for one in asked], **options)

    def check_stream(self, request: Request) -> None:
        """Refuse to stream a request that has no pieces."""

    def written(self, result: Result) -> int:
        """How many tokens the model wrote for a result."""
        return 0

    def records(self, result: Result) -> list[Any]:
        """The result as JSON-ready objects, the same from the command and from a server."""
        return [plain(one) for one in (result if isinstance(result, list) else [result])]

    def inputs(self, run: "Run", words: Iterable[str], file: Any) -> Iterator[Any]:
        """What a command line gives, one by one: its words, or the lines of standard input, or those of a file.

        `file` is a path, or None; where the verb's `files` were given, their paths. In the place of an input that
        cannot be read there may be a `RefusedInput`: the others are answered all the same.
        """
        return (self.read(line) for line in lines_of(words, file) if line.strip())

    def read(self, line: str) -> Any:
        """An input from a line of text: JSON where that is what it holds."""
        import json

        try:
            return json.loads(line)
        except ValueError:
            return line

    def show(self, result: Result, display: Any = None) -> str:
        """A result for a person."""
        return str(result)

    def line(self, result: Result, display: Any = None) -> str:
        """A result in a file of them, where each has its line or lines."""
        return self.show(result, display)

    def cut(self, result: Result) -> tuple[int, int]:
        """How many outputs of a result were cut at their greatest length, and how many it has."""
        return 0, 1

    def unknown(self, result: Result) -> Sequence[str]:
        """The words of an input that the run does not know."""
        return ()

    def shortened(self, result: Result) -> bool:
        """Whether the input of a result was longer than the model reads, so that only its beginning was read."""
        return False

    def shortened_note(self, run: "Run", shortened: int, total: int) -> str:
        """What is said in the end of so many such inputs."""
        are, whose = ("is", "its beginning was") if shortened == 1 else ("are", "their beginnings were")
        return f"{shortened:,} of {total:,} {self.unit} {are} longer than the model reads; {whose} read"

    def note(self, run: "Run", request: Request, cut: int, total: int) -> str:
        """What is said in the end of so many outputs that were cut, with what to do about it."""
        return ""


def answers(
    verb: Verb, run: "Run", pull: Pull, gone: Callable[[Asked], bool] = lambda asked: False, *, refuse: bool = False
) -> Iterator[tuple[Asked, Any]]:
    """What becomes of requests as it comes; one that fails ends it all, or with `refuse` is a `RefusedInput` where it
    is a file that cannot be read."""
    for told in verb.answer(run, pull, gone=gone):
        for asked, one in told:
            if refuse and verb.reads_files and isinstance(one, DataError):
                yield asked, RefusedInput.of(asked.item, one)
                continue
            if isinstance(one, BaseException):
                raise one
            yield asked, one


def check_each(verb: Verb, run: "Run", request: Any, items: Sequence[Any]) -> list[Any]:
    """Inputs ready to be answered, as `Verb.check` gives them; a `RefusedInput` in the place of a file that is not."""
    if not verb.reads_files:
        return list(verb.check(run, request, items))
    whole = [item for item in items if not isinstance(item, RefusedInput)]
    try:
        made = iter(verb.check(run, request, whole) if whole else ())
    except DataError as error:
        if len(whole) == 1:
            made = iter([RefusedInput.of(whole[0], error)])
        else:  # one of them is the cause
            made = (check_each(verb, run, request, [item])[0] for item in whole)
    return [item if isinstance(item, RefusedInput) else next(made) for item in items]


def refused_record(verb: Verb, refused: RefusedInput, *, as_json: bool) -> str:
    """What stands in the place of a result: a blank line, or a record with the `error`."""
    import json

    named = {verb.items: refused.name} if refused.name else {}
    return json.dumps({**named, "error": str(refused.error)}, ensure_ascii=False) if as_json else ""


def some_refused(verb: Verb, refused: int, total: int) -> SomeRefused:
    """What is said in the end where some inputs were refused."""
    were = "was" if refused == 1 else "were"
    rest = "the others are answered" if refused < total else "none is answered"
    return SomeRefused(f"{refused:,} of {total:,} {verb.unit} {were} refused; {rest}")


def ask(verb: Verb[Request, Result], run: "Run", request: Request, items: Sequence[Any] | None = None) -> list[Result]:
    """The results of one request, in the order of its inputs; these are `items` where they are given beside it."""
    given = verb.inputs_of(request) if items is None else items
    waiting = [Asked(request, item, number) for number, item in enumerate(verb.check(run, request, given))]
    found: list[Any] = [None] * len(waiting)
    rest = iter([waiting])
    for asked, one in answers(verb, run, lambda: next(rest, [])):
        if verb.piece is None or not isinstance(one, verb.piece):
            found[asked.number] = one
    return found


def plain(value: object) -> Any:
    """A result as plain values: dataclasses as mappings, without what is left `unsaid`."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        said = [field for field in dataclasses.fields(value) if not field.metadata.get("unsaid")]
        values = {field.name: getattr(value, field.name) for field in said}
        silent = {field.name for field in said if field.metadata.get("unsaid_none")}
        return {name: plain(one) for name, one in values.items() if one is not None or name not in silent}
    if isinstance(value, Mapping):
        return {key: plain(one) for key, one in value.items()}
    return [plain(one) for one in value] if isinstance(value, list | tuple) else value


def given(request: Dataclass, *leave: str) -> JsonObject:
    """The fields of a request that were given a value, by name, without those to leave out."""
    values = ((field.name, getattr(request, field.name)) for field in dataclasses.fields(request))
    return {name: value for name, value in values if name not in leave and value is not None}


def read_each(words: Iterable[str], read: Callable[[str], Iterable[Any]]) -> Iterator[Any]:
    """What `read` finds under each of these names, a file or a folder; a `RefusedInput` where it finds nothing."""
    for word in words:
        try:
            if not word.strip():  # which would be the folder that the command is run in
                raise DataError("an input is empty: give a text, or the name of a file or folder")
            yield from read(word)
        except DataError as error:
            yield RefusedInput(word, error)


def lines_of(words: Iterable[str], file: "Path | None") -> Iterable[str]:
    """The words of a command line, or the lines of the file that it names."""
    if file is None:
        return words
    from regard.data import TextFiles

    if not file.exists():
        raise DataError(f"no such file: {file}")
    return TextFiles((file,), format="lines")


def check_count(count: int, field: str, limits: RequestLimits | None, what: str) -> None:
    """Refuse an empty list, and more than a server takes."""
    if limits is None:
        return
    if not count:
        raise ConfigError(f"{field} is an empty list")
    if count > limits.texts:
        raise TooLarge(f"{field} has {count} {what}; this server takes {limits.texts} per request")


def check_characters(found: Sequence[str], field: str, limits: RequestLimits | None) -> None:
    """Refuse more than a server takes, and what is no text."""
    if limits is None:
        return
    count = sum(map(len, found))
    if count > limits.characters:
        raise TooLarge(f"{field} has {count} characters; this server takes {limits.characters} per request")
    for text in found:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ConfigError(
                f"{field} has half a surrogate pair at character {error.start}, which is no text"
            ) from None


def check_phrases(field: str, phrases: str | Sequence[str], limits: RequestLimits | None) -> None:
    """Refuse more phrases than a server takes, and longer ones."""
    several = (phrases,) if isinstance(phrases, str) else phrases
    check_characters(several, field, limits)
    if limits is not None and len(several) > PHRASES:
        raise TooLarge(f"{field} has {len(several)} phrases; this server takes {PHRASES}")
    if limits is not None and any(len(one) > PHRASE_LENGTH for one in several):
        raise TooLarge(f"{field} has a phrase of more than {PHRASE_LENGTH} characters")


def check_budget(limits: RequestLimits | None, rows: int, length: int, said: str) -> None:
    """Refuse what would keep a model for too long: so many rows, of such a length."""
    if limits is not None and rows * length > limits.budget:
        raise TooLarge(
            f"{said} may take {rows * length} tokens; this server writes {limits.budget} per request: "
            "send fewer texts at a time, or ask for a smaller beam or length"
        )
