"""`regard shortlist`: which output words may translate which source words, for faster decoding on a CPU."""

import sys
from typing import Annotated

import typer

from regard.cli.options import NO_VERIFY, RUN


def shortlist(
    run: RUN,
    data: Annotated[
        list[str] | None,
        typer.Option(help="Pairs to learn from, as for `regard train`; by default the run's own.", metavar="FILE"),
    ] = None,
    frequent: Annotated[int, typer.Option(help="Most frequent target tokens, for every source.", min=1)] = 500,
    each: Annotated[int, typer.Option(help="Likeliest target tokens for each source token.", min=1)] = 50,
    pairs: Annotated[int, typer.Option(help="Of more pairs, so many are sampled.", min=1)] = 30_000,
    no_verify: NO_VERIFY = False,
) -> None:
    """Learn which target tokens are likely for which source tokens, and write that beside the run.

    With --shortlist, `regard translate` and `regard evaluate` then choose among those alone, which is faster on a CPU.

    \b
    Examples:
      regard shortlist runs/demo
      regard shortlist runs/demo --frequent 1000 --each 200
      regard translate runs/demo --input test.en --precision int8 --shortlist
    """
    from dataclasses import replace

    from regard.cli.verbs import loaded_run
    from regard.tasks.corpora import files_corpus
    from regard.tasks.shortlisting import write_shortlist

    loaded = loaded_run(run, "cpu", "float32", verify=not no_verify)
    corpus = files_corpus(tuple(data), replace(loaded.config.data, train=tuple(data))) if data else None
    path, count = write_shortlist(loaded, frequent=frequent, each=each, pairs=pairs, corpus=corpus)
    print(f"regard: learned from {count:,} pairs", file=sys.stderr)
    print(path)
