"""Small random models that say something: what another engine must say as well."""

from contextlib import contextmanager
from pathlib import Path

import jaxtyping
import tokenizers
import torch
from tokenizers import models, pre_tokenizers

from regard.decode.config import DecodeConfig
from regard.interop.engines import export_run
from regard.runs.checkpoint import weights_of
from regard.runs.files import CONFIG, MODEL, TOKENIZER, write_json, write_tensors
from regard.tasks.config import RunConfig
from regard.tasks.run import Run, build_model
from regard.text import Vocabularies
from regard.text.tokenizer import Tokenizer

V, LONGEST = 41, 40
SMALL = {"width": 24, "heads": 4, "feed_forward": 36, "max_len": LONGEST, "dropout": 0.0}


def vocabulary():
    names = {"<pad>": 0, "<bos>": 1, "<eos>": 2, "<unk>": 3}
    names |= {f"{chr(97 + index % 26)}{index // 26}": index + 4 for index in range(V - 4)}
    tokenizer = tokenizers.Tokenizer(models.WordLevel(names, "<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return Tokenizer(tokenizer)


def _run(config):
    tokenizer = vocabulary()
    model = build_model(config)
    torch.manual_seed(3)
    for name, parameter in model.named_parameters():
        # Far from how a model starts, so that no two parts could be mistaken for each other.
        norm = parameter.dim() == 1 and name.endswith("weight")
        spread = 0.1 if norm or name.endswith("bias") else 0.3
        torch.nn.init.normal_(parameter, mean=float(norm), std=spread)
    if model.head.bias is not None:
        model.head.bias.data[tokenizer.eos] += 1.5  # so that outputs end now and then
    return Run(Path("nowhere"), config, Vocabularies(tokenizer, tokenizer), model.eval())


def translator(**settings):
    sizes = {"name": "transformer", "source_vocab_size": V, "target_vocab_size": V, **SMALL}
    stack = {"encoder_layers": 2, "decoder_layers": 2, "output_bias": True}
    return _run(
        RunConfig(model={**sizes, **stack, **settings}, decode=DecodeConfig(beam=4, max_len=20, max_ratio=None))
    )


def language_model(**settings):
    stack = {"name": "gpt", "vocab_size": V, "layers": 2, "tied": False}
    return _run(RunConfig(model={**stack, **SMALL, **settings}, task="language"))


def saved(run, directory):
    """The run on disk, as a command reads it."""
    directory.mkdir(parents=True)
    write_json(directory / CONFIG, run.config.to_mapping())
    run.vocabularies.save(directory / TOKENIZER)
    write_tensors(directory / MODEL, weights_of(run.model))
    return directory


def sentences(count=24):
    generator, tokenizer = torch.Generator().manual_seed(0), vocabulary()
    rows = [torch.randint(4, V, (1 + number % 9,), generator=generator) for number in range(count)]
    return [" ".join(tokenizer.pieces(row.tolist())) for row in rows]


@contextmanager
def sizes_may_be_symbols():
    """No checks of types: while torch traces a model, its sizes are symbols, which are no `int`."""
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)


def graphs(run, out):
    with sizes_may_be_symbols():
        return export_run(run, "onnx", out)


def outputs(translator, texts, config):
    return [[(one.tokens, one.finished) for one in best] for best in translator.translate(texts, config)]


def largest_difference(ours, theirs):
    return max(abs(one[0].score - other[0].score) for one, other in zip(ours, theirs, strict=True))
