"""`regard evaluate`: scores that carry their signature."""

import json
import math
import sys
from pathlib import Path
from typing import Annotated, Any

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
    out: Annotated[Path | None, typer.Option(help="Write the translations here, one a line.", metavar="FILE")] = None,
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
    from regard.data.puzzles.problems import read_problems
    from regard.errors import ConfigError
    from regard.runs.files import check_output, whole_file
    from regard.tasks.corpora import (
        READERS,
        Documents,
        check_documents,
        check_labelled,
        check_pairs,
        files_corpus,
        world_held_out,
    )
    from regard.tasks.evaluation import check_tokenizer
    from regard.tasks.pictures import open_evaluation
    from regard.tasks.pointing_scores import pointing_scores

    if data and world:
        raise ConfigError("give --data or --world, not both")
    check_overlong(overlong)
    if out is not None:
        check_output(out)
    check_tokenizer(tokenize)
    loaded = load(run, device)
    task = loaded.config.task
    given = {"world": world, "limit": limit, "stride": stride, "beam": beam, "length-penalty": length_penalty}
    given |= {"overlong": overlong != "split", "lowercase": lowercase, "tokenize": tokenize != "13a"}
    given |= {"alternatives": alternatives, "out": out}
    given |= {"max-len": max_len, "max-ratio": max_ratio, "max-extra": max_extra}
    check_applies(task, [name for name, value in given.items() if value is not None and value is not False])

    def say(note: str) -> None:
        print(f"regard: {note}", file=sys.stderr)

    if task == "images":
        with counting("looking", "pictures") as progress:
            result, show = score(loaded, open_evaluation(data) if data else None, progress=progress), shown_pictures
    elif task in ENCODERS:
        if data and task in READERS:
            check_labelled(loaded.config, data, say)
        with counting("reading", "texts") as progress:
            result, show = score(loaded, data, progress=progress), shown_labels
    elif task == "language":
        documents = Documents.of(data, loaded.config.data.text, loaded.config.data.header) if data else None
        if documents:
            check_documents(documents, say)
        with counting("reading", "tokens") as progress:
            result, show = score(loaded, documents, stride=stride, progress=progress), shown_text
    elif task == "pointing":
        puzzle, chosen = loaded.pointer.puzzle, {} if beam is None else {"beam": beam}
        problems = [one for file in data for one in read_problems(Path(file), puzzle)] if data else None
        with counting("pointing", "problems") as progress:
            result = pointing_scores(loaded, problems, limit=limit, progress=progress, **chosen)
        show = shown_pointing
    else:
        corpus = files_corpus(tuple(data), loaded.config.data) if data else None
        if corpus:
            check_pairs(corpus, say)
        if world:
            corpus = world_held_out("test", str(loaded.config.data.source), grammar=loaded.config.data.world_grammar)
        search = {
            "beam": beam,
            "length_penalty": length_penalty,
            "max_len": number_or_none("--max-len", max_len, int),
            "max_ratio": number_or_none("--max-ratio", max_ratio, float),
            "max_extra": number_or_none("--max-extra", max_extra, int),
        }
        search = {name: value for name, value in search.items() if value is not None}
        written: list[str] = []
        with counting("translating") as progress:
            result = score(
                loaded,
                corpus,
                limit=limit,
                overlong=overlong,  # type: ignore[arg-type]
                lowercase=lowercase,
                tokenize=tokenize,
                alternatives=alternatives,
                out=written.append,
                progress=progress,
                **search,
            )
        if note := loaded.translator.cut_note(result["cut"], result["sentences"], loaded.decode_config(**search)):
            print(note, file=sys.stderr)
        if out is not None:
            with whole_file(out) as path:
                path.write_text("".join(f"{' '.join(line.splitlines())}\n" for line in written), encoding="utf-8")
        show = shown
    print(json.dumps(result, indent=2, ensure_ascii=False) if as_json else show(result))


ENCODERS = ("masking", "classification", "tagging", "answering", "embedding")
APPLY = {"images": (), "language": ("stride",), "pointing": ("limit", "beam"), **dict.fromkeys(ENCODERS, ())}
"""What can be said of how a kind of run is measured, beside --data, --json and --device; translations take the rest."""


def check_applies(task: str, given: list[str]) -> None:
    """Refuse options that would change nothing."""
    from regard.errors import ConfigError

    if task not in APPLY:
        if "stride" in given:
            raise ConfigError("--stride is for language models")
        return
    if idle := [name for name in given if name not in APPLY[task]]:
        takes = "".join(f"--{name}, " for name in APPLY[task])
        raise ConfigError(f"--{idle[0]} says nothing to a run for {task}: only --data, {takes}--json and --device do")


def shown(result: dict[str, Any]) -> str:
    """The scores for a person, every one with its setting."""
    low, high = result["bleu_interval"]
    exact_low, exact_high = result["exact_match_interval"]
    too_long = result["pairs"] - result["perplexity_sentences"]
    left_out = f"; {too_long:,} pairs too long for the model left out" if too_long else ""
    lines = [
        f"sentences          {result['sentences']:,}  (beam {result['decode']['beam']})",
        f"BLEU               {result['bleu']:.2f}  [{low:.2f}, {high:.2f}]  {result['bleu_signature']}",
        f"BLEU, tokenised    {result['tokenised_bleu']:.2f}  {result['tokenised_bleu_signature']}",
        f"chrF               {result['chrf']:.2f}  {result['chrf_signature']}",
        f"TER                {result['ter']:.2f}  {result['ter_signature']}",
        f"exact match        {100 * result['exact_match']:.2f} %  [{100 * exact_low:.2f}, {100 * exact_high:.2f}]",
        f"token error rate   {100 * result['token_error_rate']:.2f} %  (edits a reference word)",
        f"perplexity         {result['perplexity']:.3f}  (per target token of the run's own vocabulary{left_out})",
    ]
    if result.get("pronoun_accuracy") is not None:
        lines.append(f"pronoun accuracy   {100 * result['pronoun_accuracy']:.2f} %  of {result['pronouns']}")
    if "alignment_error_rate" in result:
        head = result["alignment_head"]
        lines.append(
            f"alignment error    {result['alignment_error_rate']:.3f}  ({head['attention']}, head {head['head']}, "
            f"chosen on validation sentences, at the step that predicts the word)"
        )
    if words := result.get("unknown_words"):
        low, high = words["right_interval"]
        lines.append(
            f"unknown words      {100 * words['right']:.2f} %  [{100 * low:.2f}, {100 * high:.2f}]  right in "
            f"{words['sentences']:,} sentences that have any"
        )
    lines.append("by source length   words   sentences   exact match   BLEU")
    for band in result["by_length"]:
        if band["count"]:
            words = f"{band['low']}-{band['high'] - 1}" if band["high"] else f"{band['low']}+"
            exact, bleu = 100 * band["exact_match"], band["bleu"]
            lines.append(f"{'':18} {words:>6}   {band['count']:>9,}   {exact:>9.1f} %   {bleu:>5.1f}")
    return "\n".join(lines)


def shown_text(result: dict[str, Any]) -> str:
    """A language model's scores for a person."""
    carried = "the state carried over the whole text"
    how = carried if result["carried"] else f"window {result['window']}, stride {result['stride']}"
    return "\n".join(
        [
            f"documents          {result['documents']:,}  ({result['characters']:,} characters, "
            f"{result['bytes']:,} bytes)",
            f"perplexity         {result['perplexity']:.3f}  (per token of the run's own vocabulary, "
            f"{result['tokens']:,} tokens; {how})",
            f"loss               {result['nll']:.4f}  nats a token",
            f"bits a character   {result['bits_per_character']:.4f}",
            f"bits a byte        {result['bits_per_byte']:.4f}",
        ]
    )


def shown_pictures(result: dict[str, Any]) -> str:
    """The scores of a model of pictures for a person."""
    low, high = result["accuracy_interval"]
    lines = [
        f"pictures           {result['pictures']:,}  of {result['classes']:,} classes",
        f"accuracy           {100 * result['accuracy']:.2f} %  [{100 * low:.2f}, {100 * high:.2f}]  (95 %, Wilson)",
    ]
    low, high = result["matthews_correlation_interval"]
    correlation = f"{result['matthews_correlation']:.4f}  [{low:.4f}, {high:.4f}]"
    lines.append(f"Matthews corr.     {correlation}  {result['matthews_correlation_signature']}")
    lines.append(f"macro f1           {100 * result['macro_f1']:.2f} %")
    if result["top"] < result["classes"]:
        low, high = result["top_accuracy_interval"]
        best = f"{100 * result['top_accuracy']:.2f} %  [{100 * low:.2f}, {100 * high:.2f}]"
        lines.append(f"among the best {result['top']}   {best}")
    lines.append(f"loss               {result['nll']:.4f}  nats a picture")
    if result["classes"] <= 20:
        lines.append("by class           pictures   accuracy         f1")
        for one in result["by_class"]:
            shares = f"{100 * one['accuracy']:>6.2f} %   {100 * one['f1']:>6.2f} %"
            lines.append(f"  {one['label']:<16} {one['pictures']:>8,}   {shares}")
    for one in result["confused"]:
        lines.append(f"{one['label']} taken for {one['taken_for']}: {one['times']} times")
    return "\n".join(lines)


def shown_labels(result: dict[str, Any]) -> str:
    """An encoder's scores for a person: one a line, then those of each class."""
    lines = []
    for name, value in result.items():
        if name == "accuracy":
            low, high = result["accuracy_interval"]
            lines.append(f"accuracy           {100 * value:.2f} %  [{100 * low:.2f}, {100 * high:.2f}]")
        elif name == "matthews_correlation":
            low, high = result[f"{name}_interval"]
            lines.append(f"Matthews corr.     {value:.4f}  [{low:.4f}, {high:.4f}]  {result[f'{name}_signature']}")
        elif name == "unknown_labels":
            count, total = sum(value.values()), result.get("words", result.get("texts"))
            listed = ", ".join(f"{label} {times:,}" for label, times in [*value.items()][:5])
            listed += ", ..." if len(value) > 5 else ""
            lines.append(f"unknown labels     {count:,} of {total:,}, counted as wrong: {listed}")
        elif name == "entities":
            lines.append(f"{name:18} " + "  ".join(f"{part} {100 * value[part]:.2f} %" for part in _PARTS))
        elif isinstance(value, float):
            share = name.endswith(("accuracy", "f1", "match"))
            lines.append(f"{name.replace('_', ' '):18} " + (f"{100 * value:.2f} %" if share else f"{value:.4f}"))
        elif isinstance(value, int):
            lines.append(f"{name.replace('_', ' '):18} {value:,}")
    for label, scores in result.get("classes", {}).items():
        figures = "  ".join(f"{part} {100 * scores[part]:.2f} %" for part in _PARTS)
        lines.append(f"{label:18} {figures}  of {scores['count']:,}")
    return "\n".join(lines)


_PARTS = ("precision", "recall", "f1")


def shown_pointing(result: dict[str, Any]) -> str:
    """A pointing model's scores for a person, every one with its 95 % interval."""

    def line(label: str, name: str, note: str = "") -> str:
        low, high = result[f"{name}_interval"] or (math.nan, math.nan)
        value = math.nan if result[name] is None else result[name]
        return f"{label:18} {100 * value:.2f} %  [{100 * low:.2f}, {100 * high:.2f}]{note}"

    low, high = result["sizes"]
    items = f"{low}" if low == high else f"{low} to {high}"
    lines = [
        f"{'problems':18} {result['problems']:,}  ({result['puzzle']}, {items} items, beam {result['decode']['beam']})",
        line("exact match", "exact_match"),
    ]
    if "area_covered" in result:
        lines.append(line("area covered", "area_covered", "  of the hull, by answers whose sides do not cross"))
        lines.append(line("sides not crossing", "simple"))
    if "excess" in result:
        reference = "the shortest tour" if result["reference"] == "shortest" else "a good heuristic's tour"
        lines.append(line("valid tours", "valid"))
        lines.append(line("longer by", "excess", f"  than {reference}"))
        lines.append(f"{'mean length':18} {result['length']:.4f}  (reference {result['reference_length']:.4f})")
    return "\n".join(lines)
