"""`regard generate`: a prompt in, text out as it is drawn."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from regard.runs.generator import Generation


def generate(
    run: Annotated[Path, typer.Argument(help="A run directory of a language model.", metavar="RUN")],
    prompt: Annotated[str, typer.Argument(help="The text to go on from.", metavar="PROMPT")] = "",
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
    """
    from regard.runs import load

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
    chosen = {name: value for name, value in given.items() if value is not None}
    if beam is not None and beam > 1:
        found = loaded.beams(prompt, stop=stop or (), repetition_penalty=repetition_penalty, **chosen)
        if as_json:
            for output in found:
                print(json.dumps({"prompt": prompt, "text": output.text, "ended": output.ended}, ensure_ascii=False))
        else:
            print("\n---\n".join(prompt + output.text for output in found))
        return
    generation = loaded.generation(prompt, stop=stop or (), repetition_penalty=repetition_penalty, **chosen)
    if as_json:
        for _ in generation:
            pass
        for output in generation.outputs:
            print(json.dumps({"prompt": prompt, "text": output.text, "ended": output.ended}, ensure_ascii=False))
    else:
        show(generation)


def show(generation: "Generation") -> None:
    """The texts one after another, each after the prompt: the one whose turn it is as it comes, later ones whole."""
    waiting = [""] * generation.config.samples
    turn, begun = 0, False
    for sample, text in generation:
        waiting[sample] += text
        while turn < len(waiting):
            begun = _write(waiting, turn, generation.prompt, begun)
            if turn + 1 == len(waiting) or not generation.ended(turn):
                break
            print("\n---", flush=True)
            turn, begun = turn + 1, False
    while turn < len(waiting):
        _write(waiting, turn, generation.prompt, begun)
        print("\n---" if turn + 1 < len(waiting) else "", flush=True)
        turn, begun = turn + 1, False


def _write(waiting: list[str], turn: int, prompt: str, begun: bool) -> bool:
    sys.stdout.write(waiting[turn] if begun else prompt + waiting[turn])
    sys.stdout.flush()
    waiting[turn] = ""
    return True
