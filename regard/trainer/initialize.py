"""The model that a training begins with."""

from pathlib import Path

from torch import nn

from regard.runs.checkpoint import checkpoints
from regard.runs.files import CHECKPOINTS
from regard.tasks.config import RunConfig
from regard.tasks.report import Report
from regard.tasks.run import build_model, load_vocabularies
from regard.tasks.starting import start_weights
from regard.trainer.word_vectors import freeze_tables, start_from_vectors


def first_model(config: RunConfig, directory: Path, report: Report) -> nn.Module:
    """The model with fresh weights, or with what another run or a file of word vectors gives it to start from."""
    model, options = build_model(config), config.train
    if not checkpoints(directory / CHECKPOINTS):
        if options.start_from:
            report.say(start_weights(model, config.model, Path(options.start_from)))
        if options.vectors is not None:
            vocabularies = load_vocabularies(directory, config.tokenizer)
            for started in start_from_vectors(model, vocabularies, options.vectors):
                report.say(started.describe())
    if options.freeze_vectors:
        freeze_tables(model)
    return model
