"""BERT, and MiniLM, which is a smaller one; DistilBERT; RoBERTa: encoders, and the heads that stand on them."""

from collections.abc import Mapping

from regard.config import JsonObject
from regard.errors import ConfigError
from regard.interop.huggingface.config_fields import (
    LARGEST,
    Field,
    Json,
    activation,
    is_whole,
    label_tables,
    number,
    only,
    only_ours,
    rate,
    read_fields,
    whole,
    write_fields,
)
from regard.interop.huggingface.weights import Family, Name, Shapes, names
from regard.models.bert import BertConfig

TASKS = {
    "none": "embedding",
    "pretraining": "masking",
    "words": "masking",
    "classes": "classification",
    "tags": "tagging",
    "spans": "answering",
}
"""What a run with this head is for."""
ENDINGS = {
    "none": "Model",
    "pretraining": "ForPreTraining",
    "words": "ForMaskedLM",
    "classes": "ForSequenceClassification",
    "tags": "ForTokenClassification",
    "spans": "ForQuestionAnswering",
}
"""How the name of an architecture with this head ends."""
NOT_CLASSES = tuple(head for head in ENDINGS if head != "classes")

ENCODER_FIELDS = (
    Field("hidden_size", "width", whole, 768),
    Field("num_attention_heads", "heads", whole, 12),
    Field("num_hidden_layers", "layers", whole, 12),
    Field("intermediate_size", "feed_forward", whole, 3072),
    Field("hidden_act", "activation", activation, "gelu"),
    Field("layer_norm_eps", "norm_epsilon", number, 1e-12),
)
"""What BERT and ViT have alike."""
FIELDS = (
    Field("vocab_size", "vocab_size", whole, 30522),
    *ENCODER_FIELDS,
    Field("type_vocab_size", "segments", whole, 2),
    Field("max_position_embeddings", "max_len", whole, 512),
    Field("hidden_dropout_prob", "dropout", rate, 0.1),
    Field("attention_probs_dropout_prob", "attention_dropout", rate, 0.1),
    Field("classifier_dropout", "head_dropout", rate, lambda ours: ours["dropout"]),
)
DISTILBERT_FIELDS = (
    Field("vocab_size", "vocab_size", whole, 30522),
    Field("dim", "width", whole, 768),
    Field("n_heads", "heads", whole, 12),
    Field("n_layers", "layers", whole, 6),
    Field("hidden_dim", "feed_forward", whole, 3072),
    Field("activation", "activation", activation, "gelu"),
    Field("max_position_embeddings", "max_len", whole, 512),
    Field("dropout", "dropout", rate, 0.1),
    Field("attention_dropout", "attention_dropout", rate, 0.1),
    Field("seq_classif_dropout", "head_dropout", rate, 0.2),
)
_LAYER = {
    "attention.self.query": "attention.query",
    "attention.self.key": "attention.key",
    "attention.self.value": "attention.value",
    "attention.output.dense": "attention.output",
    "attention.output.LayerNorm": "around_attention.norm",
    "intermediate.dense": "feed_forward.inner",
    "output.dense": "feed_forward.outer",
    "output.LayerNorm": "around_feed_forward.norm",
}
_DISTILBERT_LAYER = {
    "attention.q_lin": "attention.query",
    "attention.k_lin": "attention.key",
    "attention.v_lin": "attention.value",
    "attention.out_lin": "attention.output",
    "sa_layer_norm": "around_attention.norm",
    "ffn.lin1": "feed_forward.inner",
    "ffn.lin2": "feed_forward.outer",
    "output_layer_norm": "around_feed_forward.norm",
}


def _embedding(prefix: str) -> tuple[Name, ...]:
    """The names of an embedding. One without segments has no names for them."""
    return (
        Name(f"{prefix}embeddings.word_embeddings.weight", ("embedding.tokens.weight",)),
        Name(f"{prefix}embeddings.position_embeddings.weight", ("embedding.positions.table",)),
        Name(f"{prefix}embeddings.token_type_embeddings.weight", ("embedding.segments.weight",)),
        *names({"embeddings.LayerNorm": "embedding.norm"}, prefix),
    )


_CLASSIFIER = (
    *names({"qa_outputs": "classifier"}, when=("head", ("spans",))),
    *names({"classifier": "classifier"}, when=("head", ("classes", "tags"))),
)


def _head(config: Json, stored: Shapes, words: str, next_text: str | None = None) -> str:
    """Our name of the head whose weights are there. Two that look alike are told apart by `architectures`."""
    if next_text in stored:
        return "pretraining"
    if words in stored:
        return "words"
    if "qa_outputs.weight" in stored:
        return "spans"
    if not any(name.startswith("classifier.") for name in stored):
        return "none"
    kinds = config.get("architectures")
    kind = kinds[0] if isinstance(kinds, list) and kinds else None
    for head in ("classes", "tags"):
        if isinstance(kind, str) and kind.endswith(ENDINGS[head]):
            return head
    raise ConfigError(
        f"config.json: architectures={kinds!r} is not supported with a classifier, only "
        f"...{ENDINGS['classes']} or ...{ENDINGS['tags']}"
    )


def _with_labels(config: Json, head: str, pooler: str) -> dict[str, object]:
    """Our settings of a head, with the names of its classes in the order of the classifier's rows."""
    found = {"head": head, "pooler": pooler, "labels": []}
    if head not in ("classes", "tags"):
        return found
    table = config.get("id2label") or {"0": "LABEL_0", "1": "LABEL_1"}  # their default
    if not isinstance(table, Mapping) or len(table) > LARGEST:
        raise ConfigError(f"config.json: id2label={str(table)[:60]!r} must be an object")
    labels = [name for index in range(len(table)) if isinstance(name := table.get(str(index)), str)]
    if len(labels) < len(table):
        raise ConfigError(f"config.json: id2label={str(dict(table))[:60]} must name 0 to {len(table) - 1}")
    kind = config.get("problem_type")
    if head == "classes" and (len(labels) < 2 or kind not in (None, "single_label_classification")):
        raise ConfigError(
            f"config.json: problem_type={kind!r} with {len(labels)} labels is not supported, only "
            f"one class of two or more"
        )
    return {**found, "labels": labels}


def bert_settings(config: Json) -> JsonObject:
    only(config, "position_embedding_type", "absolute")
    only(config, "is_decoder", False)
    only(config, "add_cross_attention", False)
    only(config, "tie_word_embeddings", True)
    return read_fields(FIELDS, config)


def bert_head(config: Json, shapes: Shapes) -> dict[str, object]:
    head = _head(config, shapes, "cls.predictions.transform.dense.weight", "cls.seq_relationship.weight")
    pooled = {"bert.pooler.dense.weight", "pooler.dense.weight"} & {*shapes}
    return _with_labels(config, head, "tanh" if pooled or head in ("pretraining", "classes") else "none")


def distilbert_settings(config: Json) -> JsonObject:
    only(config, "tie_word_embeddings", True)
    return {**read_fields(DISTILBERT_FIELDS, config), "segments": 0}


def distilbert_head(config: Json, shapes: Shapes) -> dict[str, object]:
    head = _head(config, shapes, "vocab_transform.weight")
    return _with_labels(config, head, "relu" if head == "classes" else "none")


def roberta_settings(config: Json) -> JsonObject:
    """BERT's, with positions counted from after the padding's id."""
    padding = config.get("pad_token_id", 1)
    if not is_whole(padding, 0):
        raise ConfigError(f"config.json: pad_token_id={padding!r} must be a whole number from 0")
    offset, places = padding + 1, whole(config, "max_position_embeddings", 512)
    if offset >= places:
        raise ConfigError(f"config.json: max_position_embeddings={places} must be above pad_token_id + 1 = {offset}")
    return {**bert_settings(config), "position_offset": offset, "max_len": places - offset}


def roberta_head(config: Json, shapes: Shapes) -> dict[str, object]:
    head = _head(config, shapes, "lm_head.dense.weight")
    if head == "words" and config.get("hidden_act", "gelu") != "gelu":
        raise ConfigError(
            f"config.json: hidden_act={config['hidden_act']!r} is not supported with an lm_head, only 'gelu'"
        )
    pooled = {"roberta.pooler.dense.weight", "pooler.dense.weight"} & {*shapes}
    return _with_labels(config, head, "tanh" if pooled or head == "classes" else "none")


def bert_configuration(config: BertConfig, kind: str = "BERT") -> dict[str, object]:
    if config.pooler != "none" or config.head == "classes":
        only_ours(config, kind, pooler="tanh")
    only_ours(config, "BERT's form", activation_dropout=0.0, positions="learned")
    return {
        "model_type": "bert",
        "architectures": ["Bert" + ENDINGS[config.head]],
        **write_fields(FIELDS, config),
        "tie_word_embeddings": True,
        **label_tables(config.labels),
    }


def distilbert_configuration(config: BertConfig) -> dict[str, object]:
    only_ours(config, "DistilBERT", pooler="relu" if config.head == "classes" else "none", norm_epsilon=1e-12)
    only_ours(config, "DistilBERT", activation_dropout=0.0, positions="learned")
    if config.head == "pretraining":
        raise ConfigError("model.head='pretraining' is not supported by DistilBERT, which has no next sentence")
    return {
        "model_type": "distilbert",
        "architectures": ["DistilBert" + ENDINGS[config.head]],
        **write_fields(DISTILBERT_FIELDS, config),
        "tie_word_embeddings": True,
        **label_tables(config.labels),
    }


def roberta_configuration(config: BertConfig) -> dict[str, object]:
    found = bert_configuration(config, "RoBERTa")
    if config.head == "pretraining":
        raise ConfigError(
            "model.head='pretraining' is not supported by RoBERTa, which has no next sentence: only 'words'"
        )
    return {
        **found,
        "model_type": "roberta",
        "architectures": ["Roberta" + ENDINGS[config.head]],
        "max_position_embeddings": config.max_len + config.position_offset,
        "pad_token_id": config.position_offset - 1,
    }


BERT = Family(
    model="bert",
    task="embedding",
    settings=bert_settings,
    found=bert_head,
    fits=lambda config: config.position_offset == 0 and config.segments > 0,
    configuration=bert_configuration,
    outside=(
        *_embedding("bert."),
        *names({"bert.pooler.dense": "pooler.dense", "cls.predictions.transform.dense": "words.dense"}),
        *names({"cls.predictions.transform.LayerNorm": "words.norm", "cls.seq_relationship": "next_text"}),
        Name("cls.predictions.bias", ("words.output.bias",)),
        *_CLASSIFIER,
    ),
    stacks={"layers": names(_LAYER, "bert.encoder.layer.{}.", "encoder.{}.")},
    head="cls.predictions.decoder.weight",
    copies=(
        ("cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"),
        ("cls.predictions.decoder.bias", "cls.predictions.bias"),
    ),
    prefix="bert.",
    ignored=r"(bert\.)?embeddings\.(position_ids|token_type_ids)",  # numbers of positions and segments
)
DISTILBERT = Family(
    model="bert",
    task="embedding",
    settings=distilbert_settings,
    found=distilbert_head,
    fits=lambda config: config.position_offset == 0 and config.segments == 0,
    configuration=distilbert_configuration,
    outside=(
        *_embedding("distilbert."),
        *names({"pre_classifier": "pooler.dense", "vocab_transform": "words.dense", "vocab_layer_norm": "words.norm"}),
        Name("vocab_projector.bias", ("words.output.bias",)),
        *_CLASSIFIER,
    ),
    stacks={"layers": names(_DISTILBERT_LAYER, "distilbert.transformer.layer.{}.", "encoder.{}.")},
    head="vocab_projector.weight",
    copies=(("vocab_projector.weight", "distilbert.embeddings.word_embeddings.weight"),),
    prefix="distilbert.",
    ignored=r"(distilbert\.)?embeddings\.position_ids",
    aliases={"hidden_size": "dim", "num_attention_heads": "n_heads", "num_hidden_layers": "n_layers"},
)
ROBERTA = Family(
    model="bert",
    task="embedding",
    settings=roberta_settings,
    found=roberta_head,
    fits=lambda config: config.position_offset > 0 and config.segments > 0,
    configuration=roberta_configuration,
    outside=(
        *_embedding("roberta."),
        *names({"roberta.pooler.dense": "pooler.dense"}, when=("head", NOT_CLASSES)),
        *names({"lm_head.dense": "words.dense", "lm_head.layer_norm": "words.norm"}),
        Name("lm_head.bias", ("words.output.bias",)),
        # A classifier of texts has the pooler as its first layer.
        *names({"classifier.dense": "pooler.dense", "classifier.out_proj": "classifier"}, when=("head", ("classes",))),
        *names({"classifier": "classifier"}, when=("head", ("tags",))),
        *names({"qa_outputs": "classifier"}, when=("head", ("spans",))),
    ),
    stacks={"layers": names(_LAYER, "roberta.encoder.layer.{}.", "encoder.{}.")},
    head="lm_head.decoder.weight",
    copies=(
        ("lm_head.decoder.weight", "roberta.embeddings.word_embeddings.weight"),
        ("lm_head.decoder.bias", "lm_head.bias"),
    ),
    prefix="roberta.",
    ignored=r"(roberta\.)?embeddings\.(position_ids|token_type_ids)",
)
