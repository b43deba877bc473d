"""`regard generate`: the texts of the verb as they are written; or questions in, answers out."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.options import (
    DEVICE,
    INPUT,
    JSON,
    NO_VERIFY,
    OUTPUT,
    PRECISION,
    PROCESSES,
    RUN,
    checked,
    options_of,
    parameter,
    standard_input,
    with_parameters,
)
from regard.cli.verbs import answered_file, check_processes, opened
from regard.errors import ConfigError
from regard.tasks.verbs import Asked
from regard.tasks.verbs.generate import GENERATE, GenerateRequest, Piece, Written, prompt_of
from regard.tasks.verbs.spec import answers

if TYPE_CHECKING:
    from regard import Run
    from regard.tasks.generator import Prompt

PROMPT = Annotated[str, typer.Argument(help="The text to go on from.", metavar="PROMPT")]


def _generate(**given: Any) -> None:
    run, device, precision, as_json, prompt = (
        given.pop(name) for name in ("run", "device", "precision", "as_json", "prompt")
    )
    verify = not given.pop("no_verify")
    file, output, processes = (given.pop(name) for name in ("input", "output", "processes"))
    options = checked(GenerateRequest, given)
    request = GenerateRequest(prompt=prompt, **options)
    check_processes(processes, file, output)
    if file is not None or output is not None:
        if file is None or output is None or prompt:
            raise ConfigError("a file of prompts is written to a file: give --input and --output, and no PROMPT")
        from regard.runs.files import check_output

        check_output(output)
        about = {"as_json": as_json, "device": device, "precision": precision, "verify": verify}
        if not answered_file(GENERATE, run, file, output, processes, options, about):
            raise ConfigError("--input and --output of generate must be files, not a pipe or device")
        return
    first: Any = prompt_of(request)
    loaded = opened(GENERATE, run, device, precision, verify=verify)
    if prompt or request.chat is None:
        write(loaded, first, request, as_json)
        return
    if (request.samples or 1) > 1 or (request.top_beams or 1) > 1:
        raise ConfigError("a conversation goes on from one answer: give a PROMPT to see several")
    talk = replace(first, messages=first.messages[:-1])  # whose empty question is not asked
    for question in filter(None, map(str.strip, standard_input("> "))):
        talk = talk.say("user", question)
        (answer,) = write(loaded, talk, request, as_json)
        talk = talk.say("assistant", answer.text.strip())


def write(run: "Run", prompt: "Prompt", request: GenerateRequest, as_json: bool) -> list[Written]:
    """Print what follows the prompt: as it is written, or whole where it is searched for or wanted as JSON."""
    asked = [Asked(request, GENERATE.prepared(run, prompt, request, None))]
    # What is shown before a text: the prompt that it goes on from, nothing before an answer.
    shown = Shown(request.samples or 1, prompt if isinstance(prompt, str) else "")
    for one, news in answers(GENERATE, run, lambda: [asked.pop()] if asked else []):
        if isinstance(news, Piece):
            if not as_json:
                shown.add(news, one.item.ended)
            continue
        if as_json:
            print("\n".join(json.dumps(record, ensure_ascii=False) for record in GENERATE.records(news)))
        elif (request.beam or 1) > 1:
            print("\n---\n".join(shown.before + output.text for output in news))
        else:
            shown.end()
        if unknown := GENERATE.unknown(news):
            print(run.task.unknown_note(run, unknown), file=sys.stderr)
        return news
    raise AssertionError("a prompt has an answer")


class Shown:
    """Texts one after another, each after the prompt: the one whose turn it is as it comes, later ones whole."""

    def __init__(self, count: int, before: str) -> None:
        self.before, self._waiting, self._turn, self._begun = before, [""] * count, 0, False

    def add(self, piece: Piece, ended: Callable[[int], bool]) -> None:
        self._waiting[piece.sample] += piece.text
        while True:
            self._write()
            if self._turn + 1 == len(self._waiting) or not ended(self._turn):
                return
            self._next()

    def end(self) -> None:
        while self._turn + 1 < len(self._waiting):
            self._write()
            self._next()
        self._write()
        print(flush=True)

    def _next(self) -> None:
        print("\n---", flush=True)
        self._turn, self._begun = self._turn + 1, False

    def _write(self) -> None:
        text = self._waiting[self._turn]
        sys.stdout.write(text if self._begun else self.before + text)
        sys.stdout.flush()
        self._waiting[self._turn], self._begun = "", True


generate = with_parameters(
    _generate,
    [
        parameter("run", RUN),
        parameter("prompt", PROMPT, ""),
        parameter("input", INPUT, None),
        parameter("output", OUTPUT, None),
        *options_of(GenerateRequest, "prompt"),
        parameter("as_json", JSON, False),
        parameter("device", DEVICE, "auto"),
        parameter("precision", PRECISION, "auto"),
        parameter("processes", PROCESSES, 1),
        parameter("no_verify", NO_VERIFY, False),
    ],
    GENERATE.help,
)
