"""`regard evaluate`: scores that carry their signature."""

import json
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.options import (
    DEVICE,
    ENGINE,
    ENGINE_FILES,
    NO_VERIFY,
    PRECISION,
    RUN,
    THREADS,
    WITH,
    checked,
    number_of_threads,
    options_of,
    parameter,
    precision_for,
    with_engine,
    with_parameters,
)
from regard.cli.verbs import loaded_run
from regard.errors import ConfigError
from regard.tasks.verbs import Between, option
from regard.tasks.verbs.translate import SearchOptions

DATA = Annotated[
    list[str] | None,
    typer.Option(
        help="Pairs to score on, as for `regard train`; by default the run's own test or validation set.",
        metavar="FILE",
    ),
]
TOGETHER = Annotated[
    int,
    typer.Option(help="Translate or summarize in so many processes on this machine.", metavar="NUMBER", min=1),
]
OUT = Annotated[
    Path | None,
    typer.Option(help="Write the translations, or the answers to problems, here, one per line.", metavar="FILE"),
]


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluateOptions(SearchOptions):
    """The options of every task; which of them apply to a run, its task says."""

    world: bool = option(False, "Score on the bundled corpus's held-out sentences.")
    limit: Annotated[int | None, Between(1, 1 << 62)] = option(None, "Score the first so many pairs.")
    stride: Annotated[int | None, Between(1, 1 << 62)] = option(
        None, "Language models: tokens from one window to the next; by default half a window."
    )
    lowercase: bool = option(False, "Compare in lower case; the signature says so.")
    tokenize: str | None = option(
        None, "sacreBLEU's tokenizer; by default 13a, or char where references have no spaces between words."
    )
    alternatives: bool = option(False, "Pairs with the same source are answers that are equally right.")
    min_words: Annotated[int | None, Between(0, 1 << 31)] = option(None, "Fewest words of a summary.")
    max_words: Annotated[int | None, Between(1, 1 << 31)] = option(None, "Most words of a summary.")
    lead_words: Annotated[int | None, Between(1, 1 << 31)] = option(
        None, "Summaries: score beside them the first so many words of each document; by default 12."
    )
    lead_sentences: Annotated[int | None, Between(1, 1 << 31)] = option(
        None, "Summaries: the same of its first so many sentences; by default 1."
    )
    metric: tuple[str, ...] = option(
        (), "A further score of translations, added by another package; repeatable.", "NAME"
    )


def _evaluate(
    run: Path,
    data: list[str] | None,
    out: Path | None,
    as_json: bool,
    engine: str,
    engine_files: Path | None,
    device: str,
    precision: str,
    threads: str,
    processes: int,
    no_verify: bool,
    others: list[Path] | None = None,
    **given: object,
) -> None:
    from regard import evaluate as score
    from regard.cli.progress import counting
    from regard.runs.files import check_output, whole_file
    from regard.tasks.translation_metrics import check_tokenizer

    defaults = EvaluateOptions()
    options = {name: one for name, one in checked(EvaluateOptions, given).items() if one != getattr(defaults, name)}
    if data and "world" in options:
        raise ConfigError("give --data or --world, not both")
    if out is not None:
        check_output(out)
    check_tokenizer(options.get("tokenize", defaults.tokenize))
    if metrics := options.pop("metric", ()):
        options["metrics"] = metrics
    precision, count = precision_for(engine, precision), number_of_threads(threads)
    loaded = with_engine(loaded_run(run, device, precision, verify=not no_verify), engine, engine_files)
    if others:
        if engine != "torch":
            raise ConfigError(
                f"--with does not apply to --engine {engine}: several runs are searched together by torch"
            )
        from regard.tasks.ensemble import ensemble

        if "translator" not in loaded.task.parts:
            raise ConfigError(f"--with is for runs that translate or summarize, not for a run for {loaded.task.name}")
        loaded = ensemble([loaded, *(loaded_run(other, device, precision, verify=not no_verify) for other in others)])
    if count is not None and "translator" in loaded.task.parts:
        loaded.translator.threads = count
    if out is not None and not loaded.task.searches:
        raise ConfigError(f"--out does not apply to a run for {loaded.task.name}, which writes nothing")
    written: list[str] = []

    def say(note: str) -> None:
        print(f"regard: {note}", file=sys.stderr)

    with ExitStack() as stack:
        if processes > 1:
            from regard.analysis.file_jobs import FileJob
            from regard.analysis.joint_translation import translating_together

            job = FileJob(
                verb="",
                run=str(run),
                others=tuple(map(str, others or ())),
                device=device,
                precision=precision,
                engine=engine,
                engine_files=None if engine_files is None else str(engine_files),
                threads=count,
                verify=not no_verify,
            )
            stack.enter_context(translating_together(loaded, job, processes, out, say))
        progress = stack.enter_context(counting("measuring", loaded.task.unit))
        result = score(loaded, data or None, out=written.append, progress=progress, say=say, **options)
        if out is not None:
            with whole_file(out) as path:
                path.write_text(
                    "".join(f"{' '.join(line.splitlines())}\n" for line in written), encoding="utf-8", newline="\n"
                )
    if engine != "torch":
        result["engine"] = engine
    print(json.dumps(result, indent=2, ensure_ascii=False) if as_json else loaded.task.show(result))


evaluate = with_parameters(
    _evaluate,
    [
        parameter("run", RUN),
        parameter("data", DATA, None),
        *options_of(EvaluateOptions),
        parameter("others", WITH, None),
        parameter("out", OUT, None),
        parameter("as_json", Annotated[bool, typer.Option("--json", help="Print one JSON object.")], False),
        parameter("engine", ENGINE, "torch"),
        parameter("engine_files", ENGINE_FILES, None),
        parameter("device", DEVICE, "auto"),
        parameter("precision", PRECISION, "auto"),
        parameter("threads", THREADS, "auto"),
        parameter("processes", TOGETHER, 1),
        parameter("no_verify", NO_VERIFY, False),
    ],
    """Translate held-out pairs and score the translations; measure a language model's perplexity, or the accuracy
    of a classifier.

    Gives BLEU, chrF and TER with their signatures, exact match, perplexity, and scores by sentence length. On the
    bundled corpus also pronoun accuracy, and the alignment error rate of the best cross-attention head.

    \b
    Examples:
      regard evaluate runs/demo
      regard evaluate runs/mine --data test.en --data test.fr --json
      regard evaluate runs/sounds --data held-out.tsv --alternatives --out answers.txt
      regard evaluate runs/words --data held-out.txt --stride 64
      regard evaluate runs/flowers --data flowers/test
    """,
)
