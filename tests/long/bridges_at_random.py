"""Checkpoints of every bridged family sampled at random: as `transformers` would save them, and as people bend them.

`compare(family, seed, folder)` makes one and says what became of it: `refused` by us, `strange` where `transformers`
itself cannot load it, `told` where the import said that outputs may differ, `equal`, or how the outputs differ.
"""

import json
import random
import traceback
import warnings
from pathlib import Path

import tokenizers
import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import decoders, models, pre_tokenizers, processors

from regard.decode.search import search
from regard.errors import RegardError
from regard.interop.huggingface import import_directory
from regard.nn.batch import Images, Pairs, Texts, Tokens, Windows

V, CLOSE = 31, 1e-4
PAD, EOS, START = 0, 1, 2
ACTIVATIONS = ["gelu_new", "gelu_pytorch_tanh", "gelu", "relu", "silu", "swish"]
OTHERS = ["mish", "quick_gelu", "tanh", "gelu_fast"]
EPSILONS = [1e-12, 1e-6, 1e-5, 1e-3, 0.1]
HEADS = ["Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering"]


class Draw(random.Random):
    """Choices that can be repeated from a family's name and a seed."""

    def chance(self, probability):
        return self.random() < probability

    def activation(self):
        return self.choice(OTHERS if self.chance(0.1) else ACTIVATIONS)

    def mostly(self, usual, *others):
        """The usual value nineteen times in twenty."""
        return usual if self.chance(0.95) else self.choice(others)


def gpt2(draw):
    heads = draw.choice([1, 2, 4])
    config = {
        "vocab_size": V, "n_embd": 8 * heads, "n_layer": draw.randint(1, 3), "n_head": heads, "n_positions": 16,
        "n_inner": draw.choice([None, 12, 20]), "activation_function": draw.activation(),
        "layer_norm_epsilon": draw.choice(EPSILONS), "scale_attn_weights": draw.mostly(True, False),
        "scale_attn_by_inverse_layer_idx": draw.mostly(False, True),
        "reorder_and_upcast_attn": draw.mostly(False, True),
        "add_cross_attention": draw.mostly(False, True), "tie_word_embeddings": draw.choice([True, False]),
        "bos_token_id": EOS, "eos_token_id": EOS,
    }  # fmt: skip
    twists = [{"hidden_size": draw.choice([config["n_embd"], 40])}, {"num_hidden_layers": config["n_layer"]}]
    twists += [{"max_position_embeddings": 16}, {"num_attention_heads": draw.choice([heads, 2 * heads])}]
    return "GPT2LMHeadModel", config, twists


def llama(draw):
    heads, shared = draw.choice([2, 4]), draw.choice([1, 2])
    bias = draw.choice([True, False])
    theta = draw.choice([10000.0, 500.0])
    config = {
        "vocab_size": V, "hidden_size": 8 * heads, "intermediate_size": draw.choice([12, 20]),
        "num_hidden_layers": draw.randint(1, 3), "num_attention_heads": heads, "num_key_value_heads": heads // shared,
        "head_dim": draw.choice([None, 4, 8, 16]), "hidden_act": draw.activation(),
        "rms_norm_eps": draw.choice(EPSILONS), "attention_bias": bias, "mlp_bias": draw.mostly(bias, not bias),
        "tie_word_embeddings": draw.choice([True, False]), "max_position_embeddings": 16,
        "rope_parameters": {"rope_type": "default", "rope_theta": theta}, "bos_token_id": EOS, "eos_token_id": EOS,
    }  # fmt: skip
    scaled = [
        {"rope_type": "linear", "factor": 4.0},
        {"type": "linear", "factor": 2.0},
        {"rope_type": "dynamic", "factor": 4.0},
        {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
         "original_max_position_embeddings": 8},
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8},
    ]  # fmt: skip
    twists = [{"rope_scaling": draw.choice(scaled)}, {"rope_parameters": draw.choice(scaled) | {"rope_theta": theta}}]
    twists += [{"rope_scaling": {"rope_type": "default"}}, {"rope_scaling": {"rope_theta": 700.0}}]
    twists += [{"rope_theta": draw.choice([theta, 900.0])}, {"rope_parameters": None, "rope_theta": 900.0}]
    twists += [{"rope_parameters": None, "rope_scaling": None}, {"rope_scaling": {}}, {"pretraining_tp": 2}]
    twists += [{"rope_parameters": {"rope_type": "default", "rope_theta": theta, "partial_rotary_factor": 0.5}}]
    twists += [{"partial_rotary_factor": draw.choice([0.5, 1.0])}, {"rope_parameters": {"rope_theta": 300.0}}]
    twists += [{"rope_parameters": {"rope_type": "default", "type": "linear", "factor": 3.0}}]
    return "LlamaForCausalLM", config, twists


def _encoder(draw, family):
    heads, ending = draw.choice([1, 2, 4]), draw.choice(HEADS)
    labels = {str(index): f"label {index}" for index in range(draw.randint(2, 4))}
    config = {
        "vocab_size": V, "hidden_size": 8 * heads, "num_hidden_layers": draw.randint(1, 3),
        "num_attention_heads": heads, "intermediate_size": draw.choice([12, 20]), "hidden_act": draw.activation(),
        "layer_norm_eps": draw.choice(EPSILONS), "type_vocab_size": draw.randint(1, 3), "max_position_embeddings": 20,
        "tie_word_embeddings": draw.mostly(True, False),
    }  # fmt: skip
    if ending in HEADS[2:4]:
        config |= {"id2label": labels, "label2id": {label: int(index) for index, label in labels.items()}}
    twists = [{"position_embedding_type": draw.choice(["absolute", "relative_key", "relative_key_query"])}]
    twists += [{"is_decoder": True}, {"chunk_size_feed_forward": 1}, {"num_labels": draw.randint(1, 4)}]
    twists += [{"problem_type": draw.choice(["regression", "multi_label_classification"])}, {"use_cache": False}]
    twists += [{"architectures": [family + draw.choice(HEADS)]}]
    return family + ending, config, twists


def bert(draw):
    name, config, twists = _encoder(draw, "Bert")
    return ("BertForPreTraining" if draw.chance(0.15) else name), config, twists


def roberta(draw):
    name, config, twists = _encoder(draw, "Roberta")
    return name, config | {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}, twists


def distilbert(draw):
    name, config, twists = _encoder(draw, "DistilBert")
    names = {"hidden_size": "dim", "num_attention_heads": "n_heads", "num_hidden_layers": "n_layers"}
    names |= {"intermediate_size": "hidden_dim", "hidden_act": "activation"}
    config = {names.get(field, field): value for field, value in config.items()}
    del config["type_vocab_size"], config["layer_norm_eps"]
    config["sinusoidal_pos_embds"] = draw.mostly(False, True)
    twists += [{"hidden_size": draw.choice([config["dim"], 40])}, {"num_attention_heads": config["n_heads"] * 2}]
    return name, config, twists


def _pair(draw):
    heads, hidden = draw.choice([1, 2, 4]), draw.choice([12, 20])
    config = {
        "vocab_size": V, "d_model": 8 * heads, "encoder_layers": draw.randint(1, 3),
        "decoder_layers": draw.randint(1, 3), "encoder_attention_heads": heads,
        "decoder_attention_heads": draw.mostly(heads, 1, 2 * heads),
        "encoder_ffn_dim": hidden, "decoder_ffn_dim": draw.mostly(hidden, 12), "max_position_embeddings": 24,
        "activation_function": draw.activation(), "scale_embedding": draw.choice([True, False]),
        "tie_word_embeddings": draw.mostly(True, False), "pad_token_id": PAD, "eos_token_id": EOS,
        "bos_token_id": START, "forced_eos_token_id": EOS,
    }  # fmt: skip
    twists = [{"hidden_size": draw.choice([8 * heads, 40])}, {"num_hidden_layers": config["encoder_layers"]}]
    twists += [{"num_attention_heads": 2 * heads}, {"normalize_before": True}, {"add_final_layer_norm": True}]
    twists += [{"normalize_embedding": draw.choice([True, False])}, {"static_position_embeddings": True}]
    twists += [{"extra_pos_embeddings": 2}]
    return config, twists


def marian(draw):
    config, twists = _pair(draw)
    config |= {"decoder_start_token_id": PAD, "share_encoder_decoder_embeddings": draw.choice([True, False])}
    if not config["share_encoder_decoder_embeddings"]:
        config["decoder_vocab_size"] = V
    return "MarianMTModel", config, twists


def bart(draw):
    config, twists = _pair(draw)
    return "BartForConditionalGeneration", config | {"decoder_start_token_id": EOS}, twists


def t5(draw):
    heads = draw.choice([1, 2, 4])
    kind = draw.activation()
    config = {
        "vocab_size": V, "d_model": 16, "d_kv": draw.choice([4, 8]), "d_ff": draw.choice([12, 20]), "num_heads": heads,
        "num_layers": draw.randint(1, 3), "num_decoder_layers": draw.choice([None, 1, 2]),
        "relative_attention_num_buckets": draw.choice([8, 16, 32]),
        "relative_attention_max_distance": draw.choice([12, 40, 128]), "layer_norm_epsilon": draw.choice(EPSILONS),
        "feed_forward_proj": draw.choice(["relu", "gated-gelu", "gated-silu", kind, f"gated-{kind}"]),
        "tie_word_embeddings": draw.choice([True, False]), "pad_token_id": PAD, "eos_token_id": EOS,
        "decoder_start_token_id": PAD, "n_positions": 24,
    }  # fmt: skip
    twists = [{"dense_act_fn": draw.activation()}, {"is_gated_act": draw.choice([True, False])}]
    twists += [{"scale_decoder_outputs": draw.choice([True, False])}, {"head_dim": draw.choice([config["d_kv"], 16])}]
    twists += [{"hidden_size": draw.choice([16, 24])}, {"feed_forward_proj": draw.choice(["gelu", "gated-relu"])}]
    return "T5ForConditionalGeneration", config, twists


def vit(draw):
    heads, patch = draw.choice([1, 2, 4]), draw.choice([2, 4])
    side = patch * draw.randint(2, 4)
    labels = {str(index): f"label {index}" for index in range(draw.randint(2, 4))}
    config = {
        "hidden_size": 8 * heads, "num_hidden_layers": draw.randint(1, 3), "num_attention_heads": heads,
        "intermediate_size": draw.choice([12, 20]), "hidden_act": draw.activation(),
        "layer_norm_eps": draw.choice(EPSILONS), "image_size": draw.choice([side, [side, side]]), "patch_size": patch,
        "num_channels": draw.choice([1, 2, 3, 3, 4]), "qkv_bias": draw.mostly(True, False), "id2label": labels,
        "label2id": {label: int(index) for index, label in labels.items()}, "pooler_act": draw.mostly("tanh", "relu"),
        "pooler_output_size": draw.mostly(None, 8),
    }  # fmt: skip
    twists = [{"head_dim": draw.choice([8, 16])}, {"image_size": side + patch}, {"patch_size": [patch, patch]}]
    return draw.choice(["ViTModel", "ViTForImageClassification"]), config, twists


FAMILIES = {
    **{"gpt2": gpt2, "llama": llama, "bert": bert, "distilbert": distilbert, "roberta": roberta},
    **{"marian": marian, "bart": bart, "t5": t5, "vit": vit},
}
PAIRS = ("marian", "bart", "t5")


def generation(draw):
    """How an encoder-decoder says that it is to be decoded."""
    said = {"num_beams": draw.choice([1, 1, 2, 4]), "forced_eos_token_id": draw.choice([EOS, EOS, None])}
    said |= draw.choice([{"max_length": draw.randint(4, 14)}, {"max_new_tokens": draw.randint(4, 14)}])
    others = [
        {"length_penalty": draw.choice([0.0, 0.6, 1.0, 2.0])},
        {"min_length": draw.randint(0, 6)},
        {"min_new_tokens": draw.randint(0, 5)},
        {"max_length": 9, "max_new_tokens": 6},
        {"no_repeat_ngram_size": draw.randint(1, 3)},
        {"bad_words_ids": [[PAD], [draw.randint(5, V - 1)]]},
        {"suppress_tokens": [PAD, 7]},
        {"forced_bos_token_id": draw.randint(5, V - 1)},
        {"early_stopping": draw.choice([True, False, "never"])},
        {"repetition_penalty": draw.choice([1.0, 1.7])},
        {"encoder_no_repeat_ngram_size": draw.choice([0, 1])},
        {"begin_suppress_tokens": [draw.randint(5, V - 1)]},
        {"eos_token_id": draw.choice([[EOS], [EOS, 9], 9])},
        {"do_sample": True},
        {"exponential_decay_length_penalty": [2, 1.5]},
        {"renormalize_logits": True},
        {"typical_p": 0.5},
    ]
    for one in draw.sample(others, draw.choice([0, 1, 1, 2])):
        said |= one
    return said


def tokenizer(family):
    if family == "roberta":
        names = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    elif "bert" in family:
        names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    else:
        names = ["<pad>", "</s>", "<s>", "<unk>", "<mask>"]
    words = {name: index for index, name in enumerate([*names, *(f"w{index}" for index in range(V - len(names)))])}
    made = tokenizers.Tokenizer(
        models.WordLevel(words, unk_token=next(name for name in names if "unk" in name.lower()))
    )
    made.pre_tokenizer, made.decoder = pre_tokenizers.WhitespaceSplit(), decoders.WordPiece(cleanup=False)
    if "bert" in family:
        first, last = ("<s>", "</s>") if family == "roberta" else ("[CLS]", "[SEP]")
        made.post_processor = processors.BertProcessing((last, words[last]), (first, words[first]))
        made.add_special_tokens(names)
    elif family in PAIRS:
        made.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", EOS)])
    return made


def bent(draw, model, saved):
    """The model's weights as they may lie in a file: tied ones once, or again, or again and not equal."""
    state, kept = model.state_dict(), dict(saved)
    again = [*model.all_tied_weights_keys, *(name for name in state if name.endswith("embed_positions.weight"))]
    more, unequal = draw.chance(0.5), draw.chance(0.3)
    for name in again:
        if name not in saved and more and draw.chance(0.7):
            kept[name] = state[name].clone()
            if unequal and draw.chance(0.7):
                kept[name].view(-1)[: max(1, kept[name].numel() // 2)] += 0.5
    if draw.chance(0.1):
        kept = {name.removeprefix(f"{model.base_model_prefix}."): value for name, value in kept.items()}
    if draw.chance(0.1):
        kept = {name: value.half() if value.is_floating_point() else value for name, value in kept.items()}
    return kept


def make(family, seed, folder):
    """A checkpoint in `folder`; the name of its class."""
    draw = Draw(f"{family} {seed}")
    kind, config, twists = FAMILIES[family](draw)
    torch.manual_seed(seed)
    built = getattr(transformers, kind).config_class(**config, attn_implementation="eager")
    model = getattr(transformers, kind)(built)
    for name, value in model.state_dict().items():
        if value.is_floating_point() and not (family == "marian" and "embed_positions" in name):
            norm = ("norm" in name.lower() or ".ln_" in name) and name.endswith("weight")
            torch.nn.init.normal_(value, mean=float(norm), std=0.1 if name.endswith("bias") else 0.3)
    model.save_pretrained(folder)
    kept = bent(draw, model, load_file(folder / "model.safetensors"))
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    said = {**json.loads(built.to_json_string(use_diff=draw.chance(0.5))), "architectures": [kind]}
    for twist in draw.sample(twists, draw.choice([0, 0, 0, 1, 1, 2])):
        said |= twist
    (folder / "config.json").write_text(json.dumps(said))
    if family in PAIRS:
        decoding = {
            "decoder_start_token_id": EOS if family == "bart" else PAD,
            "eos_token_id": EOS,
            "pad_token_id": PAD,
        }
        (folder / "generation_config.json").write_text(json.dumps(decoding | generation(draw)))
    if family != "vit":
        tokenizer(family).save(str(folder / "tokenizer.json"))
    return kind


def compare(family, seed, folder):
    """What became of a checkpoint, and why."""
    folder = Path(folder)
    kind, said = make(family, seed, folder), []
    try:
        with warnings.catch_warnings(action="ignore"):
            theirs = getattr(transformers, kind).from_pretrained(
                folder, attn_implementation="eager", dtype=torch.float32
            )
    except Exception as error:  # whatever it is, it is not an output to be equal to
        return "strange", f"{type(error).__name__}: {error}"
    try:
        run = import_directory(folder, folder / "run", said.append)
    except RegardError as error:
        return "refused", str(error)
    try:
        with torch.no_grad(), warnings.catch_warnings(action="ignore"):
            pairs = list(READERS.get(family, encoded)(run, theirs.eval(), seed))
            far = max(float((ours - other).abs().max()) for ours, other in pairs)
            if not far <= (1e-2 if any("sinusoids are exact" in one for one in said) else CLOSE):
                return "different", f"outputs differ by {far:.2g}"
            if (
                family in PAIRS
                and (found := outputs(run, theirs, seed))
                and not any("may differ" in one for one in said)
            ):
                return "different", found
    except Exception as error:
        if not any("/transformers/" in frame.filename for frame in traceback.extract_tb(error.__traceback__)):
            raise
        return "strange", f"{type(error).__name__}: {error}"
    return ("told", "; ".join(said)) if said else ("equal", "")


def rows_of(seed, lengths):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(5, V, (length,), generator=generator).tolist() for length in lengths]


def continued(run, theirs, seed):
    rows = rows_of(seed, [12, 12, 12])
    tokens = Tokens.of(rows)
    yield run.model.logits(Windows(tokens, tokens.ids, 0)), theirs(torch.tensor(rows)).logits


def translated(run, theirs, seed):
    source = Tokens.of([[*row, EOS] for row in rows_of(seed, [9, 3, 6])], PAD)
    target = Tokens.of([[run.vocabularies.target.bos, *row] for row in rows_of(seed + 1, [8, 8, 8])], PAD)
    given = {"input_ids": source.ids, "attention_mask": source.mask().long(), "decoder_input_ids": target.ids[:, :-1]}
    yield run.model.logits(Pairs(source, target)), theirs(**given).logits


def outputs(run, theirs, seed):
    """How outputs that are searched for as the checkpoint says differ, if they do."""
    decode = run.config.decode
    if decode.temperature is not None:
        return None
    tokenizer, rows = run.vocabularies.target, [[*row, EOS] for row in rows_of(seed + 2, [7, 2, 5, 9])]
    source = Tokens.of(rows, PAD)
    first = torch.full((len(rows),), tokenizer.bos)
    found = search(run.model, run.model.start(Pairs(source)), first, eos=tokenizer.eos, config=decode)
    ours = [one[0].tokens for one in found]
    made = theirs.generate(source.ids, attention_mask=source.mask().long())[:, 1:].tolist()
    ends = [row.index(tokenizer.eos) if tokenizer.eos in row else len(row) for row in made]
    expected = [row[:end] for row, end in zip(made, ends, strict=True)]
    return None if ours == expected else f"{decode}: {ours} is not {expected}"


def encoded(run, theirs, seed):
    head, pad = run.config.model["head"], run.vocabularies.target.pad
    rows = rows_of(seed, [12, 5, 9])
    tokens = Tokens.of(rows, pad)
    segments = (torch.arange(12) > 4).long().expand_as(tokens.ids) if run.config.model["segments"] > 1 else None
    given = {"input_ids": tokens.ids, "attention_mask": tokens.mask().long()}
    given |= {} if segments is None else {"token_type_ids": segments}
    expected, texts = theirs(**given, output_hidden_states=True), Texts(tokens, segments)
    x, logits = run.model(texts), run.model.logits(texts)
    named = {"words": "logits", "classes": "logits", "tags": "logits", "pretraining": "prediction_logits"}
    for index, row in enumerate(rows):  # what padding gathers is read by nobody
        size = len(row)
        yield x[index, :size], expected.hidden_states[-1][index, :size]
        if head == "classes":
            yield logits[index], expected.logits[index]
        elif head == "spans":
            yield logits[index, :size, 0], expected.start_logits[index, :size]
            yield logits[index, :size, 1], expected.end_logits[index, :size]
        elif head in named:
            yield logits[index, :size], expected[named[head]][index, :size]
        elif run.config.model["pooler"] != "none":
            yield run.model.pooler(x)[index], expected.pooler_output[index]
        if head == "pretraining":
            yield run.model.next_logits(x)[index], expected.seq_relationship_logits[index]


def seen(run, theirs, seed):
    config = run.config.model_config()
    size = (3, config.channels, config.image_size, config.image_size)
    pixels = torch.randn(size, generator=torch.Generator().manual_seed(seed))
    batch, expected = Images(pixels, torch.zeros(3, dtype=torch.long), 3), theirs(pixels)
    if config.labels:
        yield run.model.logits(batch), expected.logits
    else:
        yield run.model.read(pixels), expected.last_hidden_state
        if config.pooler:
            yield run.model(batch), expected.pooler_output


READERS = {
    **{"gpt2": continued, "llama": continued, "vit": seen},
    **dict.fromkeys(PAIRS, translated),
}
