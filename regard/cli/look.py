"""`regard look`: where the model looked, as one page."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.options import NO_VERIFY
from regard.config import Setting
from regard.digests import verifying

if TYPE_CHECKING:
    from regard.look.document import Document
    from regard.tasks.looking import LookOptions

HUGGING_FACE = "hf:"
"""Before a directory: not a run, but a checkpoint that transformers runs."""


def look(
    run: Annotated[
        Path,
        typer.Argument(
            help="A run directory or one of its checkpoints, or hf:NAME for a Hugging Face checkpoint, a directory or "
            "its name on the hub; with --gradients several runs, or presets.",
            metavar="RUN",
        ),
    ],
    text: Annotated[
        list[str] | None, typer.Argument(help="Sentences to look into, images or problems.", metavar="TEXT")
    ] = None,
    input: Annotated[
        Path | None,
        typer.Option("--input", "-i", help="A file with one sentence per line, or of problems.", metavar="FILE"),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The page to write: attention.html or gradients.html unless given."),
    ] = None,
    beam: Annotated[int | None, typer.Option(help="Hypotheses kept at each step; 1 is greedy.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    no_verify: NO_VERIFY = False,
    gradients: Annotated[
        bool,
        typer.Option(
            "--gradients",
            help="Instead, how far back the loss reaches: RUN or PRESET, as many as wanted, then one TEXT.",
        ),
    ] = False,
    target: Annotated[
        list[str] | None,
        typer.Option(
            help="Read this target instead of translating, one for each sentence; with --gradients, predict its end.",
            metavar="TEXT",
        ),
    ] = None,
    layers: Annotated[
        list[str] | None,
        typer.Option(help="Only attentions with this name or pattern; may be repeated.", metavar="PATTERN"),
    ] = None,
    heads: Annotated[str | None, typer.Option(help="Only these heads, as in 0,3.", metavar="NUMBERS")] = None,
    edits: Annotated[
        bool, typer.Option("--edits", help="Also what becomes of the output when each head is changed.")
    ] = False,
    training: Annotated[bool, typer.Option("--training", help="Also every head at every checkpoint.")] = False,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write everything as JSON, instead of a page.", metavar="FILE")
    ] = None,
    svg: Annotated[Path | None, typer.Option(help="Plot one sentence as SVG instead.", metavar="FILE")] = None,
    png: Annotated[Path | None, typer.Option(help="The same as PNG; needs matplotlib.", metavar="FILE")] = None,
    view: Annotated[
        str, typer.Option(help="What they plot: map, columns, lines, heads, text, image or decoding, which moves.")
    ] = "map",
    words: Annotated[bool, typer.Option("--words", help="Join pieces to words in --svg and --png.")] = False,
    start: Annotated[
        float | None, typer.Option(help="Of sounds: look at the part from here on, in seconds.", metavar="SECONDS")
    ] = None,
    end: Annotated[float | None, typer.Option(help="Of sounds: the end of that part.", metavar="SECONDS")] = None,
    beside: Annotated[
        Path | None,
        typer.Option(
            help="Another run, a checkpoint of one or hf:NAME, to show on the same page side by side.", metavar="RUN"
        ),
    ] = None,
    feature: Annotated[
        list[str] | None,
        typer.Option(
            help="Of a recurrence: also find units that go with what a regular expression matches; may be repeated.",
            metavar="NAME=PATTERN",
        ),
    ] = None,
    spectral_radius: Annotated[
        float | None,
        typer.Option(help="With --gradients: scale every matrix over a recurrent state to this.", metavar="RADIUS"),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="With --gradients: a setting of the presets; may be repeated.", metavar="NAME=VALUE"
        ),
    ] = None,
) -> None:
    """Show where a model looked: every attention on your sentences or images, on a page.

    A recurrent model's gates and states are on it too, over time. The page is one file for any browser and needs no
    network. With --gradients it shows, for several models together,
    how strongly the last prediction depends on each step before it; numbers and chart go beside it as .json and .svg.

    \b
    Examples:
      regard look runs/demo "I am a student." --out attention.html
      regard look runs/demo "I am a student." --layers "decoder.1.cross*" --heads 0 --svg map.svg
      regard look runs/flowers rose.jpg --out rose.html
      regard look hf:downloads/bert "I am a student." --out attention.html
      regard look runs/demo "I am a student." --beside runs/demo/checkpoints/step-500
      regard look runs/demo "I am a student." --view decoding --svg decoding.svg
      regard look runs/letters 'She said "yes (maybe)".' --feature "capitals=[A-Z]"
      regard look runs/scenes scene.png --view image --svg lit.svg
      regard look runs/digits call.wav --start 60 --end 68 --out call.html
      regard look runs/sort "[31, 4, 15, 9, 26, 5]" --out pointing.html
      regard look --gradients lstm-tiny gpt-tiny "one two three four five six seven eight" --out gradients.html
    """
    from regard.runs.files import check_output

    if gradients:
        if input or beam is not None:
            raise typer.BadParameter("--gradients takes one text, and neither --input nor --beam")
        own = (layers, heads, edits, training, json_file, svg, png, beside, start, end)
        if any(one not in (None, False, []) for one in own) or len(target or []) > 1:
            raise typer.BadParameter("--gradients has a page of its own, and one --target at most")
        page = out or Path("gradients.html")
        check_output(page, kind=".html")
        for path in (page.with_suffix(".json"), page.with_suffix(".svg")):
            check_output(path)
        given = [str(run), *(text or [])]
        _gradients(given, page, target[0] if target else None, spectral_radius, settings or [])
        return
    if spectral_radius is not None or settings:
        raise typer.BadParameter("--spectral-radius and --set go with --gradients")
    from regard.tasks.looking import LookOptions

    if beside is not None and (json_file or svg or png):
        raise typer.BadParameter("--beside makes a page: it goes with --out, not with --json, --svg or --png")
    if (words or view != "map") and not (svg or png):
        raise typer.BadParameter("--view and --words say what --svg and --png plot: give one of them")
    wanted = LookOptions(
        names=tuple(layers or ["*"]),
        heads=None if heads is None else numbers(heads),
        # Plots need none of the vectors.
        vectors=False if (svg or png) and not (out or json_file) else None,
        targets=tuple(target) if target else None,
        edits=edits,
        history=training,
        features=features(feature or []),
        start=start,
        end=end,
    )
    files = {"json": json_file, "svg": svg, "png": png}
    page = out or (None if any(files.values()) else Path("attention.html"))
    for kind, path in {"html": page, **files}.items():
        if path is not None:
            check_output(path, kind=f".{kind}")
    made = []
    with verifying(not no_verify):  # with --training also of its checkpoints
        for one in (run,) if beside is None else (run, beside):
            opened = _checkpoint if str(one).startswith(HUGGING_FACE) else _run
            texts, name, look_at = opened(str(one), text or [], input, device, beam)
            _check_plots({"page": page, **files}, texts, view)
            found = look_at(texts, wanted)
            made.append(replace(found, title=f"Where {name} looked") if name and beside else found)
    _write(made, {"page": page, **files}, view, words)


def features(given: list[str]) -> dict[str, str]:
    """NAME=PATTERN as a name and a regular expression."""
    from regard.errors import ConfigError

    for one in given:
        if not all(one.partition("=")):
            raise ConfigError(f"--feature={one} must be NAME=PATTERN, such as digits=[0-9]+")
    return {name: pattern for name, _, pattern in (one.partition("=") for one in given)}


def numbers(text: str) -> tuple[int, ...]:
    """0,3 as numbers."""
    from regard.errors import ConfigError

    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise ConfigError(f"--heads={text} must be numbers with commas between them, such as 0,3")
    return tuple(dict.fromkeys(int(part) for part in parts))


Opened = tuple[list[Any], str, Callable[[list[Any], "LookOptions"], "Document"]]
"""The inputs, the name of what is looked into, and what looks."""


def _run(path: str, texts: list[str], input: Path | None, device: str, beam: int | None) -> Opened:
    from regard import load
    from regard.cli.progress import counting
    from regard.tasks.looking import document, load_at

    # What is not there but looks like a name on the hub is told what to write before it.
    run, name = load_at(path, device) if Path(path).exists() else (load(path, device), Path(path).name)
    decode: dict[str, Setting] = {} if beam is None else {"beam": beam}

    def look_at(texts: list[Any], wanted: "LookOptions") -> "Document":
        with counting("looking", "checkpoints" if wanted.history else "heads") as progress:
            found = document(run, texts, replace(wanted, told=progress), **decode)
        return found if name == run.directory.name else replace(found, title=f"Where {name} looked")

    return run.task.inputs(run, texts, input), name, look_at


def _checkpoint(path: str, texts: list[str], input: Path | None, device: str, beam: int | None) -> Opened:
    """A Hugging Face checkpoint as it is, run by transformers."""
    from regard.interop.huggingface.looking import look_at_checkpoint
    from regard.tasks.corpora import lines_of

    if beam is not None:
        raise typer.BadParameter("--beam is for runs: what a checkpoint writes is greedy")
    directory, told = path.removeprefix(HUGGING_FACE), partial(print, "regard:", file=sys.stderr)
    given = lines_of(texts, input)
    return given, Path(directory).name, partial(look_at_checkpoint, directory, device=device, tell=told)


def _check_plots(files: dict[str, Path | None], texts: list[Any], view: str) -> None:
    from regard.errors import ConfigError
    from regard.look.attention_svg import check_view
    from regard.look.figures import need_matplotlib

    if (files["svg"] or files["png"]) and len(texts) > 1:
        raise ConfigError(f"--svg and --png plot one sentence, not {len(texts)}")
    check_view(view, as_svg=files["png"] is None)
    if files["png"]:
        need_matplotlib()


def _write(made: list["Document"], files: dict[str, Path | None], view: str, words: bool) -> None:
    """Write each file that was asked for, whole or not at all, and print its path; two documents are one page."""
    from regard.look.attention_svg import svg
    from regard.look.figures import write_png
    from regard.look.page import render, side_by_side
    from regard.runs.files import whole_file

    found = made[0]
    writers: dict[str, Callable[[Path], object]] = {
        "page": lambda path: path.write_text(
            side_by_side(*made) if len(made) > 1 else render(found), encoding="utf-8", newline="\n"
        ),
        "json": lambda path: path.write_text(
            json.dumps(found.to_mapping(packed=False)), encoding="utf-8", newline="\n"
        ),
        "svg": lambda path: path.write_text(svg(found, view=view, words=words), encoding="utf-8", newline="\n"),
        "png": lambda path: write_png(found, path, view=view, words=words),
    }
    for name, path in files.items():
        if path is not None:
            with whole_file(path) as aside:
                writers[name](aside)
            print(path)


def _gradients(given: list[str], out: Path, target: str | None, radius: float | None, settings: list[str]) -> None:
    from regard.analysis.gradients import gradients, gradients_chart, gradients_page
    from regard.errors import ConfigError
    from regard.runs.files import whole_file, write_json

    *models, text = given
    if not models:
        raise ConfigError("--gradients needs runs or presets, then the text")
    document = gradients(models, text, target=target, spectral_radius=radius, overrides=settings)
    write_json(out.with_suffix(".json"), document)
    for path, content in (
        (out.with_suffix(".svg"), gradients_chart(document, alone=True)),
        (out, gradients_page(document)),
    ):
        with whole_file(path) as aside:
            aside.write_text(content, encoding="utf-8", newline="\n")
    for one in document["models"]:
        print(f"{one['name']}: each step back multiplies the gradient by {one['factor_per_step']:.3f}")
    print(out)
