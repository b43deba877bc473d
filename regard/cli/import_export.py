"""`regard import` and `regard export`: models from other tools and for them."""

import sys
from pathlib import Path
from typing import Annotated

import typer

import_app = typer.Typer(no_args_is_help=True, help="Make a run of another tool's model.")
export_app = typer.Typer(no_args_is_help=True, help="Save a run's model for another tool.")


@import_app.callback()
def _import() -> None: ...


@export_app.callback()
def _export() -> None: ...


@import_app.command("hf", short_help="Make a run of a Hugging Face directory.")
def import_hf(
    directory: Annotated[
        Path, typer.Argument(help="A directory with config.json, model.safetensors and a tokenizer.", metavar="DIR")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The directory to make the run in.", metavar="RUN")],
) -> None:
    """Make a run of a Hugging Face directory: GPT-2, Llama, Marian, BART, T5, BERT, DistilBERT, RoBERTa or ViT.

    JSON, safetensors and SentencePiece models are read, never pickle, and no code from the directory runs.

    \b
    Examples:
      regard import hf downloads/gpt2 --out runs/gpt2
    """
    from regard.interop.huggingface import import_directory

    print(import_directory(directory, out, lambda said: print(f"regard: {said}", file=sys.stderr)).directory)


@export_app.command("hf")
def export_hf(
    run: Annotated[Path, typer.Argument(help="A run directory.", metavar="RUN")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The directory to write.", metavar="DIR")],
) -> None:
    """Save a run's model and tokenizer as a Hugging Face directory.

    \b
    Examples:
      regard export hf runs/words --out exported
    """
    from regard import load
    from regard.interop.huggingface import export_run

    print(export_run(load(run, "cpu"), out))
