"""`regard presets`: which configurations come with it."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from regard.cli.options import preset_names

CHOICES = """No preset is needed: `regard train --data FILES --out RUN` chooses by data and machine. To choose yourself:
  pairs of sentences     up to 50,000: tiny on a CPU, multi30k on a GPU; more: small on a CPU, debian-l10n on a GPU
  spelling, notations    letters-to-sounds
  running text           gpt-tiny on a CPU, gpt-characters on a GPU; words: lstm-words
  text for an encoder    bert-tiny on a CPU, bert-base on a GPU; symbols: proteins-tiny
  labelled texts, pairs  bert-tune with --from an encoder, else bert-classify; tags: bert-tag; answers: bert-answer
  images                 vit-digits on a CPU, vit-mnist and vit-tiny on a GPU; vit-tune with --from
  images with captions   caption-tiny on a CPU
  speech with texts      speech-tiny on a CPU, speech-sentences on a GPU
  texts with summaries   summarize-tiny on a CPU
  trees                  parse-tune with --from an encoder, else parse-small on a GPU, parse-tiny on a CPU
  problems with orders   pointer-sort, pointer-hull, pointer-tsp on a CPU
  several sources        sources-paraphrases for texts, sources-ambiguous for an image, sources-spoken for a sound"""


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

    if name is None:
        if everything:
            raise ConfigError("--all needs the name of a preset; see `regard presets`")
        width = max(map(len, known()))
        for preset, about in known().items():
            print(f"{preset:{width}}  {about}")
        print(CHOICES)
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
