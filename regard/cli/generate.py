"""`regard generate`: a prompt in, text out as it is drawn; or questions in, answers out."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.errors import ConfigError

if TYPE_CHECKING:
    from regard import Run
    from regard.tasks.generator import Generated, Generation, Prompt


def generate(
    run: Annotated[Path, typer.Argument(help="A run directory of a language model.", metavar="RUN")],
    prompt: Annotated[str, typer.Argument(help="The text to go on from.", metavar="PROMPT")] = "",
    chat: Annotated[
        str | None,
        typer.Option(
            help="Answer the prompt as a chat model, in this form: chatml. Without PROMPT, lines of standard input are "
            "one conversation.",
            metavar="FORM",
        ),
    ] = None,
    system: Annotated[
        str | None, typer.Option(help="Of a chat: what the model is told before.", metavar="TEXT")
    ] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Most tokens to write.", min=1)] = None,
    temperature: Annotated[
        float | None,
        typer.Option(help="1 is the model's own distribution, lower is more careful; 0 takes the likeliest."),
    ] = None,
    top_k: Annotated[int | None, typer.Option(help="Draw from the k likeliest tokens.")] = None,
    top_p: Annotated[
        float | None, typer.Option(help="Draw from the likeliest tokens that hold this probability.")
    ] = None,
    repetition_penalty: Annotated[
        float, typer.Option(help="Above 1, tokens that have occurred become less likely.")
    ] = 1.0,
    stop: Annotated[
        list[str] | None, typer.Option(help="End the text before this; may be repeated.", metavar="TEXT")
    ] = None,
    samples: Annotated[int | None, typer.Option(help="How many texts to draw.")] = None,
    beam: Annotated[
        int | None, typer.Option(help="Search for the likeliest text, keeping this many beginnings; not drawn.", min=1)
    ] = None,
    top_beams: Annotated[int | None, typer.Option(help="How many texts of a beam to print, best first.")] = None,
    length_penalty: Annotated[
        float | None, typer.Option(help="Of a beam: higher favours longer texts; 0 for none.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Fixes the draws.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a text instead.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Write on from a prompt with a language model, showing the text as it is drawn.

    \b
    Examples:
      regard generate runs/mine "Once upon a time"
      regard generate runs/mine "To be" --temperature 0.8 --top-p 0.9 --samples 3 --seed 1
      regard generate runs/mine "The end" --beam 4 --max-tokens 20
      regard generate runs/mine "Q: Why?" --temperature 0 --stop "Q:" --max-tokens 100 --json
      regard generate runs/smollm2 "Why is the sky blue?" --chat chatml --temperature 0
    """
    from regard import load
    from regard.cli.options import standard_input
    from regard.text.chat import Conversation

    if system is not None and chat is None:
        raise ConfigError("--system is what a chat model is told: give --chat with its form")
    loaded = load(run, device)
    given = {
        "max_len": max_tokens,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "samples": samples,
        "seed": seed,
        "beam": beam,
        "top_beams": top_beams,
        "length_penalty": length_penalty,
    }
    how: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    how |= {"stop": stop or (), "repetition_penalty": repetition_penalty}
    if chat is None:
        write(loaded, prompt, as_json, how)
        return
    talk = Conversation(form=chat)
    talk = talk if system is None else talk.say("system", system)
    if prompt:
        write(loaded, talk.say("user", prompt), as_json, how)
        return
    if (samples or 1) > 1 or (top_beams or 1) > 1:
        raise ConfigError("a conversation goes on from one answer: give a PROMPT to see several")
    for question in filter(None, map(str.strip, standard_input("> "))):
        talk = talk.say("user", question)
        (answer,) = write(loaded, talk, as_json, how)
        talk = talk.say("assistant", answer.text.strip())


def write(run: "Run", prompt: "Prompt", as_json: bool, how: dict[str, Any]) -> "list[Generated]":
    """Print what follows the prompt: as it is drawn, or whole where it is searched for or wanted as JSON."""
    if how.get("beam", 1) > 1:
        found = run.beams(prompt, **how)
        if not as_json:
            print("\n---\n".join(_before(prompt) + output.text for output in found))
    else:
        generation = run.generation(prompt, **how)
        if as_json:
            for _ in generation:
                pass
        else:
            show(generation)
        found = generation.outputs
    if as_json:
        from regard.tasks.records import generated

        for output in found:
            print(json.dumps(generated(prompt, output), ensure_ascii=False))
    return found


def _before(prompt: "Prompt") -> str:
    """What is shown before a text: the prompt that it goes on from, nothing before an answer."""
    return prompt if isinstance(prompt, str) else ""


def show(generation: "Generation") -> None:
    """The texts one after another, each after the prompt: the one whose turn it is as it comes, later ones whole."""
    waiting = [""] * generation.config.samples
    turn, begun, before = 0, False, _before(generation.prompt)
    for sample, text in generation:
        waiting[sample] += text
        while turn < len(waiting):
            begun = _write(waiting, turn, before, begun)
            if turn + 1 == len(waiting) or not generation.ended(turn):
                break
            print("\n---", flush=True)
            turn, begun = turn + 1, False
    while turn < len(waiting):
        _write(waiting, turn, before, begun)
        print("\n---" if turn + 1 < len(waiting) else "", flush=True)
        turn, begun = turn + 1, False


def _write(waiting: list[str], turn: int, before: str, begun: bool) -> bool:
    sys.stdout.write(waiting[turn] if begun else before + waiting[turn])
    sys.stdout.flush()
    waiting[turn] = ""
    return True
