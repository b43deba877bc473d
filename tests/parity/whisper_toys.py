"""A tiny Whisper of transformers with random weights, saved as it saves them, and sounds to hear."""

import numpy as np
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

FRAMES, MELS = 100, 16
SPECIAL = [
    *("<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|fr|>", "<|translate|>", "<|transcribe|>"),
    *("<|startoflm|>", "<|startofprev|>", "<|nospeech|>", "<|notimestamps|>"),
]
EOS, START, NO_TIMESTAMPS = 256, 257, 265
TIMES = [f"<|{index * 0.02:.2f}|>" for index in range(FRAMES // 2 + 1)]


def their_tokenizer(*, times=True):
    """Bytes alone, and the special tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE(vocab={one: index for index, one in enumerate(alphabet)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    names = [*SPECIAL, *(TIMES if times else [])]
    made.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in names])
    return made


def their_whisper(folder, *, multilingual=True, seed=0, times=True):
    import transformers

    folder.mkdir(parents=True)
    their_tokenizer(times=times).save(str(folder / "tokenizer.json"))
    config = transformers.WhisperConfig(
        vocab_size=256 + len(SPECIAL) + len(TIMES), num_mel_bins=MELS, encoder_layers=2, decoder_layers=3,
        encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=20, decoder_ffn_dim=20, d_model=12,
        max_source_positions=FRAMES // 2, max_target_positions=24, pad_token_id=EOS, bos_token_id=EOS,
        eos_token_id=EOS, decoder_start_token_id=START,
    )  # fmt: skip
    model = transformers.WhisperForConditionalGeneration(config).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.requires_grad:  # far from how a model starts, so that outputs vary
                norm = "layer_norm" in name and name.endswith("weight")
                weight.copy_(norm + torch.randn(weight.shape, generator=generator) * (0.5 if weight.ndim > 1 else 0.1))
        model.model.decoder.embed_tokens.weight[EOS] *= 2.5  # so that some outputs end
    said = {
        **{"decoder_start_token_id": START, "eos_token_id": EOS, "pad_token_id": EOS, "bos_token_id": EOS},
        **{"max_length": 24, "suppress_tokens": [3, 7, 50, START, 260, 261, 262, 263, 264]},
        **{"begin_suppress_tokens": [220, EOS], "no_timestamps_token_id": NO_TIMESTAMPS},
        **{"is_multilingual": multilingual, "max_initial_timestamp_index": 10, "return_timestamps": False},
        "alignment_heads": [[1, 0], [2, 1]],
    }
    if multilingual:
        said |= {"lang_to_id": {"<|en|>": 258, "<|fr|>": 259}, "task_to_id": {"transcribe": 261, "translate": 260}}
    model.generation_config = transformers.GenerationConfig(**said)
    model.save_pretrained(folder)
    transformers.WhisperFeatureExtractor(feature_size=MELS, chunk_length=1).save_pretrained(folder)
    return model


def their_features(sound, **how):
    import transformers

    extractor = transformers.WhisperFeatureExtractor(feature_size=MELS, chunk_length=1)
    return extractor(sound, sampling_rate=16_000, return_tensors="pt", **how)


def tones(seconds, seed=0):
    """Tones that change every tenth of a second, with some noise."""
    random, count = np.random.default_rng(seed), round(seconds * 16_000)
    pitches = np.repeat(random.uniform(100, 4000, count // 1600 + 1), 1600)[:count]
    loud = np.repeat(random.uniform(0.01, 1, count // 1600 + 1), 1600)[:count]
    sound = 0.3 * loud * np.sin(2 * np.pi * np.cumsum(pitches) / 16_000) + random.normal(0, 1e-3, count)
    return sound.astype(np.float32)
