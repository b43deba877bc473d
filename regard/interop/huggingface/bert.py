"""BERT, and MiniLM, which is a smaller one: segments, norms after, the pooler part of the encoder."""

from collections.abc import Collection, Mapping
from typing import Any

from regard.interop.huggingface.encoders import ENDINGS, both, head_of, label_tables, labels_of, task
from regard.interop.huggingface.names import (
    ACTIVATIONS,
    THEIR_ACTIVATIONS,
    Name,
    number,
    one_of,
    only,
    ours_only,
    rate,
    whole,
)
from regard.models.bert import BertConfig

__all__ = ["configuration", "fits", "found", "outside", "settings", "task"]

MODEL, TASK = "bert", "embedding"
PREFIX = "bert."
IGNORED = r"(bert\.)?embeddings\.(position_ids|token_type_ids)"  # tables of places
HEAD = "cls.predictions.decoder.weight"
COPIES = {HEAD: "bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.bias": "cls.predictions.bias"}

OUTSIDE = (
    Name("bert.embeddings.word_embeddings.weight", ("embedding.tokens.weight",)),
    Name("bert.embeddings.position_embeddings.weight", ("embedding.positions.table",)),
    Name("bert.embeddings.token_type_embeddings.weight", ("embedding.segments.weight",)),
    *both("bert.embeddings.LayerNorm", "embedding.norm"),
    *both("bert.pooler.dense", "pooler.dense"),
    *both("cls.predictions.transform.dense", "words.dense"),
    *both("cls.predictions.transform.LayerNorm", "words.norm"),
    Name("cls.predictions.bias", ("words.output.bias",)),
    *both("cls.seq_relationship", "next_text"),
)


def layer(prefix: str) -> tuple[Name, ...]:
    """The names inside a block, which RoBERTa's blocks have too."""
    pairs = {
        "attention.self.query": "attention.query",
        "attention.self.key": "attention.key",
        "attention.self.value": "attention.value",
        "attention.output.dense": "attention.output",
        "attention.output.LayerNorm": "around_attention.norm",
        "intermediate.dense": "feed_forward.inner",
        "output.dense": "feed_forward.outer",
        "output.LayerNorm": "around_feed_forward.norm",
    }
    return tuple(
        name
        for theirs, ours in pairs.items()
        for name in both(f"{prefix}.encoder.layer.{{}}.{theirs}", f"encoder.{{}}.{ours}")
    )


STACKS = {"layers": layer("bert")}


def outside(model: Mapping[str, Any]) -> tuple[Name, ...]:
    """The names outside the blocks, by the model's head."""
    theirs = "qa_outputs" if model["head"] == "spans" else "classifier"
    return (*OUTSIDE, *both(theirs, "classifier"))


def settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Our settings of the encoder."""
    only(config, "position_embedding_type", "absolute")
    only(config, "is_decoder", False)
    only(config, "add_cross_attention", False)
    only(config, "tie_word_embeddings", True)
    dropout = rate(config, "hidden_dropout_prob", 0.1)
    return {
        "vocab_size": whole(config, "vocab_size", 30522),
        "width": whole(config, "hidden_size", 768),
        "heads": whole(config, "num_attention_heads", 12),
        "layers": whole(config, "num_hidden_layers", 12),
        "feed_forward": whole(config, "intermediate_size", 3072),
        "activation": one_of(config, "hidden_act", ACTIVATIONS, "gelu"),
        "norm_epsilon": number(config, "layer_norm_eps", 1e-12),
        "segments": whole(config, "type_vocab_size", 2),
        "max_len": whole(config, "max_position_embeddings", 512),
        "dropout": dropout,
        "attention_dropout": rate(config, "attention_probs_dropout_prob", 0.1),
        "head_dropout": rate(config, "classifier_dropout", dropout),
    }


def found(config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Our settings of what stands on the encoder, told by the weights that are there."""
    head = head_of(config, names, "cls.predictions.transform.dense.weight", "cls.seq_relationship.weight")
    pooled = {"bert.pooler.dense.weight", "pooler.dense.weight"} & set(names)
    pooler = "tanh" if pooled or head in ("pretraining", "classes") else "none"
    return {"head": head, "pooler": pooler, "labels": labels_of(config, head)}


def fits(config: Any) -> bool:
    return isinstance(config, BertConfig) and config.position_offset == 0 and config.segments > 0


def configuration(config: BertConfig) -> dict[str, Any]:
    """Their configuration of our model."""
    if config.pooler != "none" or config.head == "classes":
        ours_only(config, "BERT", pooler="tanh")
    return {"model_type": "bert", "architectures": ["Bert" + ENDINGS[config.head]], **sizes(config)}


def sizes(config: BertConfig) -> dict[str, Any]:
    """What RoBERTa's configuration says in the same words."""
    ours_only(config, "BERT's form", activation_dropout=0.0)
    return {
        "vocab_size": config.vocab_size,
        "hidden_size": config.width,
        "num_attention_heads": config.heads,
        "num_hidden_layers": config.layers,
        "intermediate_size": config.feed_forward,
        "hidden_act": THEIR_ACTIVATIONS[config.activation],
        "layer_norm_eps": config.norm_epsilon,
        "type_vocab_size": config.segments,
        "max_position_embeddings": config.max_len + config.position_offset,
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
        "classifier_dropout": config.head_dropout,
        "tie_word_embeddings": True,
        **label_tables(config),
    }
