"""RoBERTa: BERT's blocks, positions counted from after the padding's, and a pooler that is part of the classifier."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from regard.errors import ConfigError
from regard.interop.huggingface import bert
from regard.interop.huggingface.encoders import ENDINGS, both, head_of, labels_of, task
from regard.interop.huggingface.names import Name, ours_only, whole
from regard.models.bert import BertConfig

__all__ = ["configuration", "fits", "found", "outside", "settings", "task"]

MODEL, TASK = "bert", "embedding"
PREFIX = "roberta."
IGNORED = r"(roberta\.)?embeddings\.(position_ids|token_type_ids)"
HEAD = "lm_head.decoder.weight"
COPIES = {HEAD: "roberta.embeddings.word_embeddings.weight", "lm_head.decoder.bias": "lm_head.bias"}

_ENCODER = tuple(
    replace(name, theirs="roberta." + name.theirs.removeprefix("bert."))
    for name in bert.OUTSIDE
    if name.theirs.startswith("bert.embeddings.")
)
STACKS = {"layers": bert.layer("roberta")}


def outside(model: Mapping[str, Any]) -> tuple[Name, ...]:
    """The names outside the blocks, by the model's head."""
    words = (
        *both("lm_head.dense", "words.dense"),
        *both("lm_head.layer_norm", "words.norm"),
        Name("lm_head.bias", ("words.output.bias",)),
    )
    if model["head"] == "classes":
        return (*_ENCODER, *both("classifier.dense", "pooler.dense"), *both("classifier.out_proj", "classifier"))
    theirs = "qa_outputs" if model["head"] == "spans" else "classifier"
    return (*_ENCODER, *both("roberta.pooler.dense", "pooler.dense"), *words, *both(theirs, "classifier"))


def settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Our settings of the encoder."""
    padding = config.get("pad_token_id", 1)
    if not isinstance(padding, int) or isinstance(padding, bool) or padding < 0:
        raise ConfigError(f"config.json: pad_token_id={padding!r} must be a whole number from 0")
    offset, places = padding + 1, whole(config, "max_position_embeddings", 512)
    if offset >= places:
        raise ConfigError(f"config.json: max_position_embeddings={places} must be above pad_token_id + 1 = {offset}")
    return {**bert.settings(config), "position_offset": offset, "max_len": places - offset}


def found(config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Our settings of what stands on the encoder, told by the weights that are there."""
    head = head_of(config, names, "lm_head.dense.weight")
    if head == "words" and config.get("hidden_act", "gelu") != "gelu":
        raise ConfigError(
            f"config.json: hidden_act={config['hidden_act']!r} is not supported with an lm_head, only 'gelu'"
        )
    pooled = {"roberta.pooler.dense.weight", "pooler.dense.weight"} & set(names)
    return {
        "head": head,
        "pooler": "tanh" if pooled or head == "classes" else "none",
        "labels": labels_of(config, head),
    }


def fits(config: Any) -> bool:
    return isinstance(config, BertConfig) and config.position_offset > 0 and config.segments > 0


def configuration(config: BertConfig) -> dict[str, Any]:
    """Their configuration of our model."""
    if config.pooler != "none" or config.head == "classes":
        ours_only(config, "RoBERTa", pooler="tanh")
    if config.head == "pretraining":
        raise ConfigError(
            "model.head='pretraining' cannot be said in RoBERTa, which has no next sentence: only 'words'"
        )
    return {
        "model_type": "roberta",
        "architectures": ["Roberta" + ENDINGS[config.head]],
        **bert.sizes(config),
        "pad_token_id": config.position_offset - 1,
    }
