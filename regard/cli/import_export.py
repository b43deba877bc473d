"""`regard import` and `regard export`: models from other tools and for them."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.options import NO_VERIFY

import_app = typer.Typer(no_args_is_help=True, help="Make a run of another tool's model.")
export_app = typer.Typer(no_args_is_help=True, help="Save a run's model for another tool.")


@import_app.callback()
def _import() -> None: ...


@export_app.callback()
def _export() -> None: ...


@import_app.command("hf", short_help="Make a run of a Hugging Face model.")
def import_hf(
    directory: Annotated[
        str,
        typer.Argument(
            help="A directory with config.json, model.safetensors and a tokenizer, or a model's name on the hub.",
            metavar="DIR|NAME",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The directory to make the run in.", metavar="RUN")],
    revision: Annotated[
        str | None, typer.Option(help="A branch, tag or commit of a model on the hub.", metavar="NAME")
    ] = None,
) -> None:
    """Make a run of a Hugging Face model: GPT-2, Llama, Marian, BART, T5, BERT and its kin, ViT or Whisper.

    JSON, safetensors and SentencePiece models are read, never pickle, and no code runs. What is no directory here is
    fetched from the hub by its name, unless HF_HUB_OFFLINE is set: then the hub's cache is all that is looked at.

    \b
    Examples:
      regard import hf downloads/gpt2 --out runs/gpt2
      regard import hf sentence-transformers/all-MiniLM-L6-v2 --out runs/minilm
    """
    from regard.interop.hub import PREFIX, checkpoint
    from regard.interop.huggingface import import_directory

    def tell(said: str) -> None:
        print(f"regard: {said}", file=sys.stderr)

    found = checkpoint(directory.removeprefix(PREFIX), revision=revision, fresh=True, tell=tell)
    print(import_directory(found, out, tell).directory)


EXPORTED = Annotated[Path, typer.Argument(help="A run directory.", metavar="RUN")]
EXPORT_OUT = Annotated[Path, typer.Option("--out", "-o", help="The directory to write.", metavar="DIR")]
SENTENCES = Annotated[
    Path | None,
    typer.Option(
        help="Compare run and export on these, one per line; by default the first 100 of the run's own data.",
        metavar="FILE",
    ),
]
FORCE = Annotated[bool, typer.Option("--force", help="Accept an export that does not say what the run says.")]


@export_app.command("hf", short_help="Save a run for Hugging Face transformers.")
def export_hf(
    run: EXPORTED, out: EXPORT_OUT, sentences: SENTENCES = None, force: FORCE = False, no_verify: NO_VERIFY = False
) -> None:
    """Save a run's model and tokenizer as a Hugging Face directory.

    Where `transformers` is there, its numbers are compared with the run's; parity.json in the directory has the report.

    \b
    Examples:
      regard export hf runs/gpt2 --out exported
    """
    given = _sentences(sentences)
    from regard import load
    from regard.interop.huggingface import export_run
    from regard.interop.parity import check_huggingface, require

    loaded = load(run, "cpu", verify=not no_verify)
    print(export_run(loaded, out), flush=True)
    report, lines = check_huggingface(loaded, out, given)
    _say(lines)
    if not force:
        require(report, out)


@export_app.command("ctranslate2", short_help="Save a run for CTranslate2.")
def export_ctranslate2(
    run: EXPORTED,
    out: EXPORT_OUT,
    quantization: Annotated[
        str, typer.Option(help="How weights are kept: float32, float16, int8 or int8_float32.")
    ] = "float32",
    sentences: SENTENCES = None,
    force: FORCE = False,
    no_verify: NO_VERIFY = False,
) -> None:
    """Save a run's model and vocabularies for CTranslate2: a translation model, or a language model.

    What CTranslate2 cannot express is refused by name. The export then decodes sentences, greedily and by beam, and so
    does the run; parity.json in the directory says how many outputs are equal. If too few are, the exit code is 1.

    \b
    Examples:
      regard export ctranslate2 runs/demo --out exported
      regard export ctranslate2 runs/demo --out small --quantization int8 --sentences test.en
    """
    _to_engine(run, "ctranslate2", out, quantization, sentences, force, not no_verify)


@export_app.command("onnx", short_help="Save a run as ONNX graphs.")
def export_onnx(
    run: EXPORTED, out: EXPORT_OUT, sentences: SENTENCES = None, force: FORCE = False, no_verify: NO_VERIFY = False
) -> None:
    """Save a run's model as ONNX graphs: an encoder and one cached decoder step, or a language model's step.

    onnxruntime then decodes sentences with them, greedily and by beam, and so does the run; parity.json in the
    directory says how many outputs are equal. If too few are, the exit code is 1.

    \b
    Examples:
      regard export onnx runs/demo --out exported
    """
    _to_engine(run, "onnx", out, "float32", sentences, force, not no_verify)


def _to_engine(
    run: Path, engine: str, out: Path, quantization: str, sentences: Path | None, force: bool, verify: bool
) -> None:
    given = _sentences(sentences)
    from regard import load
    from regard.interop.engines import export_run
    from regard.interop.parity import check_engine_files, require

    loaded = load(run, "cpu", verify=verify)
    print(export_run(loaded, engine, out, quantization), flush=True)
    report, lines = check_engine_files(loaded, engine, out, given)
    _say(lines)
    if not force:
        require(report, out)


def _sentences(file: Path | None) -> list[str] | None:
    from regard.tasks.verbs.spec import lines_of

    return None if file is None else list(lines_of((), file))


def _say(lines: list[str]) -> None:
    for line in lines:
        print(f"regard: {line}", file=sys.stderr)
