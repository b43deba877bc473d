"""`regard presets`: which configurations come with it."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from regard.cli.options import preset_names

CHOICES = {
    "pairs of sentences, up to 50,000": ("tiny", "multi30k"),
    "pairs of sentences, more": ("small", "debian-l10n"),
    "spelling, notations": ("letters-to-sounds", "letters-to-sounds"),
    "texts with summaries": ("summarize-tiny", "summarize-tiny"),
    "running text": ("gpt-tiny", "gpt-characters"),
    "running text in words": ("lstm-words", "lstm-words"),
    "text for an encoder": ("bert-tiny", "bert-base"),
    "sequences of symbols for an encoder": ("proteins-tiny", "proteins-tiny"),
    "labelled texts, pairs: from an encoder": ("bert-tune", "bert-tune"),
    "labelled texts, pairs: from nothing": ("lstm-classify", "bert-classify"),
    "words with tags: from an encoder": ("bert-tag", "bert-tag"),
    "words with tags: from nothing": ("lstm-tag", "bert-tag"),
    "questions and answers": ("bert-answer", "bert-answer"),
    "trees: from an encoder": ("parse-tune", "parse-tune"),
    "trees: from nothing": ("parse-tiny", "parse-small"),
    "small images": ("vit-digits", "vit-mnist"),
    "images: from another model": ("vit-tune", "vit-tune"),
    "images: from nothing": ("vit-tiny", "vit-tiny"),
    "images with captions": ("caption-tiny", "caption-tiny"),
    "speech with texts": ("speech-tiny", "speech-sentences"),
    "numbers to sort": ("pointer-sort", "pointer-sort"),
    "points with a hull": ("pointer-hull", "pointer-hull"),
    "points with a tour": ("pointer-tsp", "pointer-tsp"),
    "several texts for one": ("sources-paraphrases", "sources-paraphrases"),
    "a text and an image for a text": ("sources-ambiguous", "sources-ambiguous"),
    "a text and a sound for a text": ("sources-spoken", "sources-spoken"),
}
"""By kind of data, the presets to choose on a CPU and on a GPU."""

ON_GPU = {
    *("multi30k", "debian-l10n", "letters-to-sounds", "gpt-characters", "lstm-words", "bert-tune", "parse-tune"),
    *("parse-small", "vit-mnist", "speech-sentences"),
}
"""Those whose figures in docs/results were measured on a GPU."""


def choices(machine: str, *, gpu: bool) -> Iterator[str]:
    """Which preset to choose by data, on this machine and on others."""
    heads = ("data", f"on this machine ({machine})", "on a CPU" if gpu else "on a GPU")
    marked = {kind: [name + "*" * (name in ON_GPU) for name in both] for kind, both in CHOICES.items()}
    rows = [heads, *((kind, *(reversed(both) if gpu else both)) for kind, both in marked.items())]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  " + "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
    yield "* measured on a GPU; on a CPU it takes longer. What begins from another run needs --from RUN."


def presets(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Show this preset, as TOML to copy and change.", metavar="NAME", autocompletion=preset_names
        ),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Show every setting there is, also those the preset leaves as they are.")
    ] = False,
) -> None:
    """List the bundled configurations, or show one.

    \b
    Examples:
      regard presets
      regard presets tiny > my.toml
      regard presets tiny --all
    """
    from regard.errors import ConfigError
    from regard.tasks.config import make_config, preset_text
    from regard.tasks.config import presets as known
    from regard.tasks.planning import this_machine

    if name is None:
        if everything:
            raise ConfigError("--all needs the name of a preset; see `regard presets`")
        width = max(map(len, known()))
        for preset, about in known().items():
            print(f"{preset:{width}}  {about}")
        machine = this_machine()
        print("No preset is needed: `regard train --data FILES --out RUN` chooses by itself. To choose otherwise:")
        print("\n".join(choices(str(machine), gpu=machine.gpu is not None)))
        return
    if everything:
        print("\n".join(toml(make_config(preset=name).every_setting())))
    else:
        print(preset_text(name), end="")


def toml(mapping: Mapping[str, Any], within: str = "") -> Iterator[str]:
    """The lines of a TOML file with these values and, after them, sections; what is not set is a comment."""
    named = {key if re.fullmatch(r"[\w-]+", key, re.ASCII) else json.dumps(key): key for key in mapping}
    for name, key in named.items():
        value = mapping[key]
        if value is None:
            yield f"# {name} is not set"
        elif not isinstance(value, Mapping):
            yield f"{name} = {json.dumps(value, ensure_ascii=False)}"  # plain values are the same in JSON and TOML
    for name, key in named.items():
        if isinstance(mapping[key], Mapping):
            yield f"\n[{within}{name}]"
            yield from toml(mapping[key], f"{within}{name}.")
