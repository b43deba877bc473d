"""One toolkit's Transformer, trained on the batches it is given: what `toolkits.py` starts for each of them.

Each is built by its own toolkit's classes and trained with the loss it trains with; the statistics some keep beside it
are left out. Adam is torch's fused one for all. What a toolkit imports for other work than this (audio, web pages,
language detection) may be missing from its environment.
"""

import importlib.metadata
import importlib.util
import json
import logging
import sys
import time
import warnings
from argparse import Namespace
from types import SimpleNamespace
from unittest.mock import MagicMock

import torch
import torch.nn.functional as F
from torch import nn

SMOOTHING, DROPOUT = 0.1, 0.1


def regard(sizes):
    from regard.data import PairStore, collate
    from regard.models.transformer import Transformer, TransformerConfig
    from regard.training.objectives import SequenceToSequence

    model = Transformer(
        TransformerConfig(
            source_vocab_size=sizes.vocabulary,
            target_vocab_size=sizes.vocabulary,
            width=sizes.width,
            heads=sizes.heads,
            encoder_layers=sizes.layers,
            decoder_layers=sizes.layers,
            feed_forward=sizes.feed_forward,
            dropout=DROPOUT,
            max_len=512,
        )
    )
    task = SequenceToSequence(SMOOTHING)

    def batch(pairs):
        store = PairStore.of([([*source, 2], [1, *target, 2]) for source, target in pairs], 0)
        return collate(store, list(range(len(pairs))))

    return model, batch, lambda batch: task.loss(model, batch).total


def huggingface(sizes):
    from transformers import MarianConfig, MarianMTModel
    from transformers.utils import logging as theirs

    theirs.set_verbosity_error()
    model = MarianMTModel(
        MarianConfig(
            vocab_size=sizes.vocabulary,
            d_model=sizes.width,
            encoder_layers=sizes.layers,
            decoder_layers=sizes.layers,
            encoder_attention_heads=sizes.heads,
            decoder_attention_heads=sizes.heads,
            encoder_ffn_dim=sizes.feed_forward,
            decoder_ffn_dim=sizes.feed_forward,
            dropout=DROPOUT,
            attention_dropout=0.0,
            activation_dropout=0.0,
            activation_function="relu",
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
            decoder_start_token_id=1,
            forced_eos_token_id=None,
            max_position_embeddings=512,
            scale_embedding=True,
        )
    )

    def loss(batch):
        # A batch without padding needs no mask, and runs faster without one.
        mask = None if batch.full else batch.visible.long()
        logits = model(input_ids=batch.source, attention_mask=mask, decoder_input_ids=batch.target[:, :-1]).logits
        return smoothed(logits, batch.target[:, 1:], 0)

    return model, padded(bos=1, eos=2, pad=0), loss


def fairseq(sizes):
    stub("torchaudio", "torchaudio.compliance", "torchaudio.compliance.kaldi")
    unchecked_dataclass_defaults()
    from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
    from fairseq.data import Dictionary
    from fairseq.models.transformer import TransformerModel, base_architecture

    words = Dictionary()
    for index in range(sizes.vocabulary - len(words)):
        words.add_symbol(str(index))
    options = Namespace(
        encoder_embed_dim=sizes.width,
        encoder_ffn_embed_dim=sizes.feed_forward,
        encoder_layers=sizes.layers,
        encoder_attention_heads=sizes.heads,
        decoder_layers=sizes.layers,
        decoder_attention_heads=sizes.heads,
        share_all_embeddings=True,
        dropout=DROPOUT,
        max_source_positions=512,
        max_target_positions=512,
    )
    base_architecture(options)
    task = SimpleNamespace(source_dictionary=words, target_dictionary=words)
    model = TransformerModel.build_model(options, task)
    criterion = LabelSmoothedCrossEntropyCriterion(task, False, SMOOTHING)

    def loss(batch):
        net_input = {
            "src_tokens": batch.source,
            "src_lengths": batch.lengths,
            "prev_output_tokens": batch.target[:, :-1],
        }
        net = model(**net_input)
        return criterion.compute_loss(model, net, {"target": batch.target[:, 1:].contiguous()}, reduce=True)[0]

    return model, padded(bos=0, eos=2, pad=1), loss


def opennmt(sizes):
    stub(
        "spacy",
        "spacy.language",
        "fasttext",
        "ctranslate2",
        "flask",
        "waitress",
        "pyonmttok",
        "ahocorasick",
        "rapidfuzz",
    )
    from onmt.decoders.transformer import TransformerDecoder
    from onmt.encoders.transformer import TransformerEncoder
    from onmt.models import NMTModel
    from onmt.modules import Embeddings

    def embeddings():
        return Embeddings(sizes.width, sizes.vocabulary, 1, position_encoding=True, dropout=DROPOUT)

    source, target = embeddings(), embeddings()
    target.word_lut.weight = source.word_lut.weight
    common = (sizes.layers, sizes.width, sizes.heads, sizes.feed_forward)
    encoder = TransformerEncoder(*common, DROPOUT, 0.0, source, 0, 0, add_qkvbias=True)
    decoder = TransformerDecoder(
        *common, False, "scaled-dot-flash", DROPOUT, 0.0, target, 0, 0, False, False, -1, 0, add_qkvbias=True
    )
    model = NMTModel(encoder, decoder)
    model.generator = nn.Linear(sizes.width, sizes.vocabulary)
    model.generator.weight = target.word_lut.weight
    initialise(model)

    def loss(batch):
        mixed, _ = model(batch.source.unsqueeze(-1), batch.target.unsqueeze(-1), batch.lengths)
        return smoothed(model.generator(mixed.flatten(0, 1)), batch.target[:, 1:], 1)

    return model, padded(bos=2, eos=3, pad=1), loss


def eole(sizes):
    stub("ctranslate2", "datasets", "fastapi", "pyonmttok", "spacy", "fasttext", "ahocorasick", "rapidfuzz", "pandas")
    from eole.config.models import TransformerModelConfig
    from eole.config.training import TrainingConfig
    from eole.models.model import EncoderDecoderModel

    words = {"<unk>": 0, "<blank>": 1, "<s>": 2, "</s>": 3} | {
        str(index): index for index in range(4, sizes.vocabulary)
    }
    config = TransformerModelConfig(
        layers=sizes.layers,
        hidden_size=sizes.width,
        heads=sizes.heads,
        transformer_ff=sizes.feed_forward,
        embeddings={"word_vec_size": sizes.width, "position_encoding_type": "SinusoidalInterleaved"},
        share_embeddings=True,
        share_decoder_embeddings=True,
        add_qkvbias=True,
        add_ffnbias=True,
    )
    running = TrainingConfig(dropout=[DROPOUT], attention_dropout=[0.0])
    model = EncoderDecoderModel.build(config, {"src": words, "tgt": words, "specials": {}}, running)
    initialise(model)

    def loss(batch):
        mixed = model(batch.source, batch.target, batch.lengths).dec_out
        return smoothed(model.generator(mixed.flatten(0, 1)), batch.target[:, 1:], 1)

    return model, padded(bos=2, eos=3, pad=1), loss


def joey(sizes):
    stub("datasets", "pandas", "seaborn")
    from joeynmt.model import build_model
    from joeynmt.vocabulary import Vocabulary

    names = {"unk": "<unk>", "pad": "<pad>", "bos": "<s>", "eos": "</s>"}
    special = {f"{name}_token": text for name, text in names.items()} | {
        f"{name}_id": index for index, name in enumerate(names)
    }
    options = SimpleNamespace(**special, sep_token=None, sep_id=None, lang_tags=[])
    words = Vocabulary([str(index) for index in range(sizes.vocabulary - 4)], options)
    side = {
        "type": "transformer",
        "num_layers": sizes.layers,
        "num_heads": sizes.heads,
        "embeddings": {"embedding_dim": sizes.width, "scale": True, "dropout": DROPOUT},
        "hidden_size": sizes.width,
        "ff_size": sizes.feed_forward,
        "dropout": DROPOUT,
    }
    options = {"encoder": side, "decoder": side, "tied_embeddings": True, "tied_softmax": True}
    model = build_model(
        options | {"initializer": "xavier_uniform", "embed_initializer": "xavier_uniform"}, words, words
    )
    model.loss_function = ("crossentropy", SMOOTHING)

    def loss(batch):
        labels = batch.target[:, 1:]
        return model(
            return_type="loss",
            src=batch.source,
            trg_input=batch.target[:, :-1],
            trg=labels,
            src_mask=batch.visible.unsqueeze(1),
            src_length=batch.lengths,
            trg_mask=(labels != 1).unsqueeze(1),
        )[0]

    return model, padded(bos=2, eos=3, pad=1), loss


PEERS = {
    "regard": (regard, "torch"),
    "huggingface": (huggingface, "transformers"),
    "fairseq": (fairseq, "fairseq"),
    "opennmt": (opennmt, "OpenNMT-py"),
    "eole": (eole, "eole"),
    "joey": (joey, "joeynmt"),
}


def smoothed(logits, labels, pad: int):
    labels = labels.reshape(-1)
    return F.cross_entropy(
        logits.reshape(len(labels), -1), labels, ignore_index=pad, label_smoothing=SMOOTHING, reduction="sum"
    )


def padded(*, bos: int, eos: int, pad: int):
    def batch(pairs):
        source = rows([[*words, eos] for words, _ in pairs], pad)
        target = rows([[bos, *words, eos] for _, words in pairs], pad)
        visible = source != pad
        return SimpleNamespace(
            source=source, target=target, visible=visible, lengths=visible.sum(1), full=bool(visible.all())
        )

    return batch


def rows(lists, pad: int):
    longest = max(map(len, lists))
    return torch.tensor([row + [pad] * (longest - len(row)) for row in lists])


def initialise(model) -> None:
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            nn.init.xavier_uniform_(parameter)
        elif name.endswith("bias"):
            nn.init.zeros_(parameter)
        else:
            nn.init.ones_(parameter)


def stub(*names: str) -> None:
    """Stand in for what is imported for other work, where it is not installed."""
    missing = [name for name in names if importlib.util.find_spec(name.partition(".")[0]) is None]
    for name in missing:
        sys.modules.setdefault(name, MagicMock())


def unchecked_dataclass_defaults() -> None:
    """Let a dataclass be another's default, as fairseq has it and Python from 3.11 on refuses."""
    import dataclasses

    plain = dataclasses._process_class

    def lenient(cls, init, shown, eq, order, unsafe_hash, frozen, *others):
        made = plain(cls, init, shown, eq, order, unsafe_hash, frozen, *others)
        if made.__hash__ is None:
            made.__hash__ = object.__hash__
        return made

    dataclasses._process_class = lenient


def main() -> None:
    name, work, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
    answer, sys.stdout = sys.stdout, sys.stderr
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    with open(work, encoding="utf-8") as file:
        given = json.load(file)
    build, package = PEERS[name]
    model, batch, loss = build(SimpleNamespace(**given["sizes"]))
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
    work = [(batch(pairs), sum(len(target) + 1 for _, target in pairs)) for pairs in given["batches"]]

    def step(made, count: int) -> float:
        total = loss(made) / count
        total.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return total.item()

    first, _ = (step(*one) for one in work[:2])
    try:
        version = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        version = sys.modules[package].__version__
    facts = {
        "version": version,
        "torch": torch.__version__,
        "parameters": sum(parameter.numel() for parameter in optimizer.state),
        "loss": first,
    }
    print(json.dumps(facts), file=answer, flush=True)
    for line in sys.stdin:
        began = time.perf_counter(), time.process_time()
        step(*work[int(line)])
        print(time.perf_counter() - began[0], time.process_time() - began[1], file=answer, flush=True)


if __name__ == "__main__":
    main()
