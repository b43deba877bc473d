"""`regard evaluate`: scores that carry their signature."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer


def evaluate(
    run: Annotated[Path, typer.Argument(help="A run directory.", metavar="RUN")],
    data: Annotated[
        list[str] | None,
        typer.Option(
            help="Pairs to score on, as for `regard train`; by default the run's own test or validation set.",
            metavar="FILE",
        ),
    ] = None,
    world: Annotated[bool, typer.Option("--world", help="Score on the bundled corpus's held-out sentences.")] = False,
    limit: Annotated[int | None, typer.Option(help="Score the first so many pairs.", min=1)] = None,
    stride: Annotated[
        int | None,
        typer.Option(help="Language models: tokens from one window to the next; by default half a window.", min=1),
    ] = None,
    beam: Annotated[int | None, typer.Option(help="Hypotheses kept at each step; 1 is greedy.")] = None,
    length_penalty: Annotated[
        float | None, typer.Option(help="Higher favours longer translations; 0 for none.")
    ] = None,
    max_len: Annotated[
        str | None,
        typer.Option(
            help="Most tokens of a translation; where given, the only limit; none for all the model can write.",
            metavar="NUMBER",
        ),
    ] = None,
    max_ratio: Annotated[
        str | None,
        typer.Option(
            help="Most tokens of a translation for each of the source, plus --max-extra; or none.", metavar="NUMBER"
        ),
    ] = None,
    max_extra: Annotated[str | None, typer.Option(help="See --max-ratio; or none.", metavar="NUMBER")] = None,
    overlong: Annotated[
        str, typer.Option(help="A sentence longer than the model reads: split it, truncate it, or refuse it.")
    ] = "split",
    lowercase: Annotated[
        bool, typer.Option("--lowercase", help="Compare in lower case; the signature says so.")
    ] = False,
    tokenize: Annotated[str, typer.Option(help="sacreBLEU's tokenizer.")] = "13a",
    alternatives: Annotated[
        bool, typer.Option("--alternatives", help="Pairs with the same source are answers that are equally right.")
    ] = False,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            help="A further score of translations, added by another package; may be repeated.", metavar="NAME"
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Write the translations, or the answers to problems, here, one a line.", metavar="FILE"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Translate held-out pairs and score the translations; measure a language model's perplexity, or the accuracy
    of a model of pictures.

    Gives BLEU, chrF and TER with their signatures, exact match, perplexity, and scores by sentence length. On the
    bundled corpus also pronoun accuracy, and the alignment error rate of the best cross-attention head.

    \b
    Examples:
      regard evaluate runs/demo
      regard evaluate runs/mine --data test.en --data test.fr --json
      regard evaluate runs/sounds --data held-out.tsv --alternatives --out answers.txt
      regard evaluate runs/words --data held-out.txt --stride 64
      regard evaluate runs/flowers --data flowers/test
    """
    from regard import evaluate as score
    from regard import load
    from regard.cli.options import check_overlong, number_or_none
    from regard.cli.progress import counting
    from regard.errors import ConfigError
    from regard.runs.files import check_output, whole_file
    from regard.tasks.translation_metrics import check_tokenizer

    if data and world:
        raise ConfigError("give --data or --world, not both")
    check_overlong(overlong)
    if out is not None:
        check_output(out)
    check_tokenizer(tokenize)
    loaded = load(run, device)
    given = {
        "limit": limit,
        "stride": stride,
        "metrics": tuple(metric) if metric else None,
        "world": world or None,
        "lowercase": lowercase or None,
        "alternatives": alternatives or None,
        "overlong": overlong if overlong != "split" else None,
        "tokenize": tokenize if tokenize != "13a" else None,
        "beam": beam,
        "length_penalty": length_penalty,
        "max_len": number_or_none("--max-len", max_len, int),
        "max_ratio": number_or_none("--max-ratio", max_ratio, float),
        "max_extra": number_or_none("--max-extra", max_extra, int),
    }
    options = {name: value for name, value in given.items() if value is not None}
    if out is not None and not loaded.task.searches:
        raise ConfigError(f"--out does not apply to a run for {loaded.task.name}, which writes nothing")
    written: list[str] = []

    def say(note: str) -> None:
        print(f"regard: {note}", file=sys.stderr)

    with counting("measuring", loaded.task.unit) as progress:
        result = score(loaded, data or None, out=written.append, progress=progress, say=say, **options)
    if out is not None:
        with whole_file(out) as path:
            path.write_text("".join(f"{' '.join(line.splitlines())}\n" for line in written), encoding="utf-8")
    print(json.dumps(result, indent=2, ensure_ascii=False) if as_json else loaded.task.show(result))
