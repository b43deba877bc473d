"""DistilBERT: BERT without segments, its pooler a layer of the classifier with relu."""

from collections.abc import Collection, Mapping
from typing import Any

from regard.errors import ConfigError
from regard.interop.huggingface.encoders import ENDINGS, both, head_of, label_tables, labels_of, task
from regard.interop.huggingface.names import (
    ACTIVATIONS,
    THEIR_ACTIVATIONS,
    Name,
    one_of,
    only,
    ours_only,
    rate,
    whole,
)
from regard.models.bert import BertConfig

__all__ = ["configuration", "fits", "found", "outside", "settings", "task"]

MODEL, TASK = "bert", "embedding"
PREFIX = "distilbert."
IGNORED = r"(distilbert\.)?embeddings\.position_ids"
HEAD = "vocab_projector.weight"
COPIES = {HEAD: "distilbert.embeddings.word_embeddings.weight"}
ALIASES = {"hidden_size": "dim", "num_attention_heads": "n_heads", "num_hidden_layers": "n_layers"}

OUTSIDE = (
    Name("distilbert.embeddings.word_embeddings.weight", ("embedding.tokens.weight",)),
    Name("distilbert.embeddings.position_embeddings.weight", ("embedding.positions.table",)),
    *both("distilbert.embeddings.LayerNorm", "embedding.norm"),
    *both("pre_classifier", "pooler.dense"),
    *both("vocab_transform", "words.dense"),
    *both("vocab_layer_norm", "words.norm"),
    Name("vocab_projector.bias", ("words.output.bias",)),
)
_PARTS = {
    "attention.q_lin": "attention.query",
    "attention.k_lin": "attention.key",
    "attention.v_lin": "attention.value",
    "attention.out_lin": "attention.output",
    "sa_layer_norm": "around_attention.norm",
    "ffn.lin1": "feed_forward.inner",
    "ffn.lin2": "feed_forward.outer",
    "output_layer_norm": "around_feed_forward.norm",
}
STACKS = {
    "layers": tuple(
        name
        for theirs, ours in _PARTS.items()
        for name in both(f"distilbert.transformer.layer.{{}}.{theirs}", f"encoder.{{}}.{ours}")
    )
}


def outside(model: Mapping[str, Any]) -> tuple[Name, ...]:
    """The names outside the blocks, by the model's head."""
    return (*OUTSIDE, *both("qa_outputs" if model["head"] == "spans" else "classifier", "classifier"))


def settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Our settings of the encoder."""
    only(config, "tie_word_embeddings", True)
    return {
        "vocab_size": whole(config, "vocab_size", 30522),
        "width": whole(config, "dim", 768),
        "heads": whole(config, "n_heads", 12),
        "layers": whole(config, "n_layers", 6),
        "feed_forward": whole(config, "hidden_dim", 3072),
        "activation": one_of(config, "activation", ACTIVATIONS, "gelu"),
        "segments": 0,
        "max_len": whole(config, "max_position_embeddings", 512),
        "dropout": rate(config, "dropout", 0.1),
        "attention_dropout": rate(config, "attention_dropout", 0.1),
        "head_dropout": rate(config, "seq_classif_dropout", 0.2),
    }


def found(config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Our settings of what stands on the encoder, told by the weights that are there."""
    head = head_of(config, names, "vocab_transform.weight")
    return {"head": head, "pooler": "relu" if head == "classes" else "none", "labels": labels_of(config, head)}


def fits(config: Any) -> bool:
    return isinstance(config, BertConfig) and config.position_offset == 0 and config.segments == 0


def configuration(config: BertConfig) -> dict[str, Any]:
    """Their configuration of our model."""
    ours_only(config, "DistilBERT", pooler="relu" if config.head == "classes" else "none", norm_epsilon=1e-12)
    ours_only(config, "DistilBERT", activation_dropout=0.0)
    if config.head == "pretraining":
        raise ConfigError("model.head='pretraining' cannot be said in DistilBERT, which has no next sentence")
    return {
        "model_type": "distilbert",
        "architectures": ["DistilBert" + ENDINGS[config.head]],
        "vocab_size": config.vocab_size,
        "dim": config.width,
        "n_heads": config.heads,
        "n_layers": config.layers,
        "hidden_dim": config.feed_forward,
        "activation": THEIR_ACTIVATIONS[config.activation],
        "max_position_embeddings": config.max_len,
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "seq_classif_dropout": config.head_dropout,
        "tie_word_embeddings": True,
        **label_tables(config),
    }
