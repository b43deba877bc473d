"""`regard distill`: a faster model that learns what another one writes."""

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.options import DEVICE, WITH, preset_names


def distill(
    teacher: Annotated[Path, typer.Argument(help="The run to learn from: one that translates.", metavar="TEACHER")],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The directory to make the student's run in.", metavar="DIRECTORY")
    ],
    preset: Annotated[
        str | None,
        typer.Option(
            help="The student's configuration; see `regard presets`. By default the teacher's own.",
            metavar="NAME",
            autocompletion=preset_names,
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Change a setting of the student, e.g. --set model.decoder_layers=1; may be repeated.",
            metavar="NAME=VALUE",
        ),
    ] = None,
    beam: Annotated[int, typer.Option(help="How many hypotheses the teacher keeps.", min=1)] = 5,
    keep_references: Annotated[
        bool, typer.Option("--keep-references", help="Train on the teacher's own training pairs as well.")
    ] = False,
    from_teacher: Annotated[
        bool,
        typer.Option(
            "--from-teacher",
            help="Begin with the teacher's weights; with fewer layers these are some of the teacher's, spread evenly.",
        ),
    ] = False,
    only_data: Annotated[
        bool, typer.Option("--only-data", help="Write the pairs to train on, and train nothing.")
    ] = False,
    others: WITH = None,
    device: DEVICE = "auto",
) -> None:
    """Train a model on what a teacher makes of its own training sources: sequence-level knowledge distillation.

    Stopped while it translates, the same command goes on from there; then `regard train --resume` does.

    \b
    Examples:
      regard distill runs/base --preset transformer-deep-shallow --out runs/fast
      regard distill runs/mine --set model.encoder_layers=6 --set model.decoder_layers=1 --out runs/fast
      regard distill runs/mine --set model.decoder_layers=1 --from-teacher --out runs/fast
      regard distill runs/mine --only-data --out runs/fast
    """
    from regard import ensemble
    from regard.cli.progress import TrainingProgress
    from regard.errors import ConfigError
    from regard.trainer.distillation import distill, write_distilled

    if only_data and (preset is not None or settings or from_teacher):
        raise ConfigError("--only-data trains nothing: leave out --preset, --set and --from-teacher")
    if from_teacher and others:
        raise ConfigError("--from-teacher begins with the weights of one teacher: leave out --with")
    learnt_from = ensemble([teacher, *others], device) if others else teacher
    with TrainingProgress() as progress:
        if only_data:
            print(
                write_distilled(learnt_from, out, progress, beam=beam, keep_references=keep_references, device=device)
            )
            return
        distill(
            learnt_from,
            out,
            preset,
            tuple(settings or ()),
            progress,
            beam=beam,
            keep_references=keep_references,
            from_teacher=from_teacher,
            device=device,
        )
    print(out)
