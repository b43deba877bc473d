"""What the commands and programs of the documents name: files, folders, checkpoints and runs, made when asked for.

A line of a page that says `regard tag runs/names --input sentences.txt` is tried in a folder that holds a run that tags
at `runs/names` and texts at `sentences.txt`, and nothing else. Each kind of thing is made once and copied to where it
is named. Runs are narrow and have had two updates, checkpoints are of random weights.
"""

import gzip
import json
import random
import re
import shutil
import sys
from pathlib import Path

import numpy as np

from regard.cli import main
from regard.data.audio import write_wav
from regard.digests import digests_of
from regard.tasks.config import make_config, presets

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "tests/parity"))

WORDS = [
    "the",
    "sun",
    "the",
    "sea",
    "king",
    "queen",
    "man",
    "woman",
    "river",
    "good",
    "bad",
    "day",
    "was",
    "one",
    "two",
]
ENGLISH = ["I am a student.", "The animal didn't cross the street because it was too tired.", "Thanks. It was wide."]
FRENCH = ["Je suis étudiant.", "L'animal n'a pas traversé la rue.", "Merci. Elle était large."]
FEW = {
    **{"world": 40, "trees": 40, "telegrams": 40, "examples": 40, "scenes": 40, "speech": 10},
    **{"puzzle_sizes": [4, 5]},
}
"""The settings of `data` that say how much is made up, and how little is enough."""


def brief(preset, given=(), *, own_data=False):
    """Settings by which a training takes two updates of a narrow model, less those that are given."""
    settings = {
        **{"train.steps": 2, "train.warmup": 1, "train.threads": 1, "train.validate_every": 100},
        **{"train.save_every": 100, "train.device": "cpu"},
    }
    if preset in presets():
        every = make_config(preset=preset).every_setting()
        model, data, train = every.get("model", {}), every.get("data", {}), every["train"]
        settings |= {"decode.max_len": 4} if "max_len" in every.get("decode", {}) else {}
        settings |= {"train.validate_sentences": 2} if "validate_sentences" in train else {}
        # What a compiler saves in thousands of updates it does not in two: most of the time of such a line was its.
        settings |= {f"train.{name}": "false" for name in ("compile", "compile_blocks") if train.get(name)}
        narrow = {"width": 16, "heads": 2, "feed_forward": 24, "bands": 8}
        if model.get("head_width") is None:
            settings |= {f"model.{name}": value for name, value in narrow.items() if isinstance(model.get(name), int)}
        settings |= {} if own_data else {f"data.{name}": value for name, value in FEW.items() if data.get(name)}
    said = {one.partition("=")[0] for one in given}
    return [part for name, value in settings.items() if name not in said for part in ("--set", f"{name}={value}")]


class Materials:
    """Makes things of a kind in a folder, each once, and lays them out under the names of the documents."""

    def __init__(self, folder):
        self.folder, self.dice = folder, random.Random(0)

    def path(self, kind):
        """Where the thing of this kind is; it is made at the first call."""
        there = self.folder / kind.replace(" ", "-")
        if not there.exists():
            there.parent.mkdir(parents=True, exist_ok=True)
            if kind in RUNS:
                self.train(there, *RUNS[kind])
            elif kind in COMMANDS:
                assert main([str(part) for part in COMMANDS[kind](self, there)]) == 0, kind
            else:
                MAKERS[kind](self, there)
        return there

    def train(self, there, preset, data=None, *settings):
        words = ["train", "--preset", preset, "--out", str(there)]
        if data is not None:
            files = self.path(data.partition("/")[0]) / data.partition("/")[2]
            parts = ("--data", "--valid", "--test") if files.is_file() and files.suffix != ".npz" else ("--data",)
            words += [word for part in parts for word in (part, str(files))]
        given = [*settings]
        words += [part for one in given for part in ("--set", one)]
        assert main([*words, *brief(preset, given, own_data=data is not None)]) == 0, words

    def lay_out(self, named, folder, where=""):
        """Copies of what is named (words of a line or strings of a program) to where the names say, in `folder`.

        `where` is the page and the line: names that mean other things there are found by what is in it.
        """
        for word in named:
            plain = re.sub(r"^(hf:|[\w.-]+=)", "", word)
            parts = plain.split("/")
            for name in [word, *("/".join(parts[:count]) for count in range(1, len(parts) + 1))]:
                kind = next((other for mark, this, other in MEANT if this == name and mark in where), NAMES.get(name))
                if kind is not None and not (folder / name).exists():
                    (folder / name).parent.mkdir(parents=True, exist_ok=True)
                    made = self.path(kind)
                    (shutil.copytree if made.is_dir() else shutil.copy)(made, folder / name)

    def pairs(self, path, first=ENGLISH, second=FRENCH, count=8):
        path.write_text("".join(f"{a}\t{b}\n" for a, b in zip(first, second, strict=True)) * count, encoding="utf-8")

    def running_text(self):
        lines = [" ".join(self.dice.choices(WORDS, k=6)).capitalize() + "." for _ in range(300)]
        return "\n\n".join("\n".join(lines[start : start + 5]) for start in range(0, len(lines), 5)) + "\n"


def written(text):
    """A maker of a text file."""
    return lambda _, path: path.write_text(text, encoding="utf-8")


def jsonl(*rows, count=8):
    return written("".join(json.dumps(row) + "\n" for row in rows) * count)


def photographs(materials, folder):
    """A folder of labelled images, in two splits and three classes."""
    for split, count in (("train", 4), ("valid", 2), ("test", 2)):
        for label in ("rose", "tulip", "poppy"):
            (folder / split / label).mkdir(parents=True)
            for number in range(count):
                photograph(materials, folder / split / label / f"{number}.jpg")


def photograph(materials, path):
    from PIL import Image

    Image.fromarray(np.random.default_rng(len(str(path))).integers(0, 255, (40, 40, 3), dtype=np.uint8)).save(
        path if path.suffix else path.with_suffix(".png")
    )
    if not path.suffix:
        path.with_suffix(".png").rename(path)


def emoji(materials, folder):
    shutil.copytree(materials.path("scenes"), folder)
    (folder / "images").mkdir()
    shutil.copy(next((folder / "test").glob("*.png")), folder / "images/1f600.png")


def sound(materials, path):
    from whisper_toys import tones

    path.write_bytes(write_wav(tones(0.6), 16_000))


def sounds(materials, folder):
    folder.mkdir()
    for number in range(2):
        sound(materials, folder / f"{number}.wav")


def recordings(materials, path):
    path.write_text("sound\ttext\ntalk.wav\tone two\n", encoding="utf-8")


def shards(materials, folder):
    import pyarrow

    folder.mkdir()
    rows = "".join(json.dumps({"en": a, "fr": b}) + "\n" for a, b in zip(ENGLISH, FRENCH, strict=True)) * 8
    for number in range(2):
        with pyarrow.CompressedOutputStream(str(folder / f"{number}.jsonl.zst"), "zstd") as out:
            out.write(rows.encode())


def compressed(lines):
    def make(materials, folder):
        folder.mkdir()
        for number in range(2):
            with gzip.open(folder / f"{number}.txt.gz", "wt", encoding="utf-8") as out:
                out.write("".join(f"{line}\n" for line in lines) * 8)

    return make


def table(materials, path):
    with gzip.open(path, "wt", encoding="utf-8") as out:
        out.write("".join(f'1,"{a}","{b}"\n' for a, b in zip(ENGLISH, FRENCH, strict=True)) * 8)


def vectors(materials, path):
    generator = np.random.default_rng(0)
    words = sorted({*WORDS, "prince", "princess"})
    rows = [f"{word} {' '.join(f'{one:.4f}' for one in generator.normal(size=50))}\n" for word in words]
    path.write_text("".join(rows), encoding="utf-8")


def corpus(materials, folder):
    folder.mkdir()
    for name in ("train", "valid", "test"):
        materials.pairs(folder / f"{name}.tsv")


def whisper(materials, folder):
    from whisper_toys import their_whisper

    their_whisper(folder, multilingual=False)


def distilbert(materials, folder):
    import transformers

    shutil.copytree(materials.path("checkpoint of a classifier"), folder)
    (folder / "model.safetensors").unlink()
    said = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    labels = {key: said[key] for key in ("id2label", "label2id")}
    config = transformers.DistilBertConfig(
        vocab_size=said["vocab_size"],
        max_position_embeddings=512,
        dim=16,
        n_layers=2,
        n_heads=2,
        hidden_dim=24,
        **labels,
    )
    transformers.DistilBertForSequenceClassification(config).save_pretrained(folder)


def marian(materials, folder):
    """A small Marian with the SentencePiece models that one has."""
    import sentencepiece
    import transformers

    folder.mkdir()
    text = folder / "text.txt"
    text.write_text("".join(f"{line}\n" for line in (*ENGLISH, *FRENCH)) * 8, encoding="utf-8")
    for side in ("source", "target"):
        sentencepiece.SentencePieceTrainer.train(
            input=str(text), model_prefix=str(folder / side), vocab_size=60, hard_vocab_limit=False, minloglevel=2
        )
        (folder / f"{side}.model").rename(folder / f"{side}.spm")
        (folder / f"{side}.vocab").unlink()
    text.unlink()
    reader = sentencepiece.SentencePieceProcessor(model_file=str(folder / "source.spm"))
    pieces = [reader.id_to_piece(index) for index in range(3, reader.get_piece_size())]
    known = {piece: index for index, piece in enumerate(["</s>", "<unk>", *pieces, "<pad>"])}
    (folder / "vocab.json").write_text(json.dumps(known), encoding="utf-8")
    said = {"source_lang": "en", "target_lang": "fr", "tokenizer_class": "MarianTokenizer"}
    (folder / "tokenizer_config.json").write_text(json.dumps(said), encoding="utf-8")
    config = transformers.MarianConfig(
        vocab_size=len(known), d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=24, decoder_ffn_dim=24, max_position_embeddings=64,
        pad_token_id=len(known) - 1, eos_token_id=0, decoder_start_token_id=len(known) - 1, scale_embedding=True,
        activation_function="swish",
    )  # fmt: skip
    model = transformers.MarianMTModel(config)
    model.generation_config.max_length = 20
    model.save_pretrained(folder)


def chat_model(materials, folder):
    """A small Llama that knows the marks of a conversation."""
    import transformers
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE(vocab={one: index for index, one in enumerate(alphabet)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    marks = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    made.add_special_tokens([AddedToken(mark, special=True, normalized=False) for mark in marks])
    named = {"eos_token": "<|endoftext|>", "bos_token": "<|endoftext|>", "pad_token": "<|endoftext|>"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=made, **named).save_pretrained(folder)
    config = transformers.LlamaConfig(
        vocab_size=259, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=512, bos_token_id=256, eos_token_id=256, pad_token_id=256,
        tie_word_embeddings=True,
    )  # fmt: skip
    transformers.LlamaForCausalLM(config).save_pretrained(folder)


def sentence_encoder(materials, folder):
    """A small BERT without a head over words: what a sentence encoder is."""
    import transformers

    shutil.copytree(materials.path("checkpoint of an encoder"), folder)
    said = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "model.safetensors").unlink()
    sizes = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    kept = {name: said[name] for name in (*sizes, "max_position_embeddings")}
    transformers.BertModel(transformers.BertConfig(**kept)).save_pretrained(folder)


def with_a_checkpoint(materials, folder):
    shutil.copytree(materials.path("history"), folder)
    one = sorted((folder / "checkpoints").iterdir())[0]
    if one.name != "step-500":
        other = shutil.copytree(one, folder / "checkpoints/step-500")
        record = json.loads((other / "progress.json").read_text(encoding="utf-8")) | {"step": 500}
        (other / "progress.json").write_text(json.dumps(record), encoding="utf-8")
        (other / "digests.json").write_text(digests_of(other), encoding="utf-8")


def with_a_shortlist(materials, folder):
    shutil.copytree(materials.path("translator"), folder)
    assert main(["shortlist", str(folder)]) == 0


SPLITS = ["--train", 12, "--valid", 5, "--test", 5]
COMMANDS = {
    "scenes": lambda own, there: ["data", "scenes", there, *SPLITS, "--combinations", 3],
    "spoken": lambda own, there: ["data", "speech", there, *SPLITS],
    "proteins": lambda own, there: ["data", "proteins", there, "--train", 40, "--valid", 4, "--test", 8],
    "telegrams": lambda own, there: ["data", "telegrams", there, *SPLITS],
    "problems": lambda own, there: ["data", "tsp", there, *SPLITS, "--size", 5],
    "digits": lambda own, there: ["data", "digits", there],
    "trees": lambda own, there: ["data", "trees", there, *SPLITS],
    "ambiguous rows": lambda own, there: ["data", "sources", there, "--kind", "ambiguous", *SPLITS],
    "spoken rows": lambda own, there: ["data", "sources", there, "--kind", "spoken", *SPLITS],
    "checkpoint of an encoder": lambda own, there: ["export", "hf", own.path("encoder"), "--out", there],
    "checkpoint of a classifier": lambda own, there: ["export", "hf", own.path("classifier"), "--out", there],
    "checkpoint of a language model": lambda own, there: ["export", "hf", own.path("gpt2"), "--out", there],
    "checkpoint of an image model": lambda own, there: ["export", "hf", own.path("image model"), "--out", there],
    "exported translator": lambda own, there: ["export", "ctranslate2", own.path("translator"), "--out", there],
    "imported whisper": lambda own, there: ["import", "hf", own.path("whisper"), "--out", there],
    "imported chat model": lambda own, there: ["import", "hf", own.path("chat model"), "--out", there],
    "imported sentence encoder": lambda own, there: ["import", "hf", own.path("sentence encoder"), "--out", there],
    "imported marian": lambda own, there: ["import", "hf", own.path("marian"), "--out", there],
}
"""Made by a command of `regard` itself."""

SHORT = ("model.max_len=64", "data.max_len=32", "model.layers=2")
TEXTS = ("model.max_len=512", "data.max_len=32", "model.layers=2", "tokenizer.vocab_size=200")
RUNS = {
    "translator": (
        *("demo", "pairs.tsv", "model.max_len=64", "data.max_len=64", "decode.max_len=8", "train.validate_every=2"),
    ),
    "teacher": (  # whose outputs end
        *("tiny", "pairs.tsv", "model.max_len=64", "data.max_len=64", "decode.max_len=32", "train.steps=80"),
        *("train.warmup=5", "train.learning_rate=0.01", "train.schedule=constant", "model.width=32", "model.dropout=0"),
    ),
    "history": ("demo", "pairs.tsv", "model.max_len=64", "data.max_len=64", "train.save_every=1", "train.keep=9"),
    "language model": ("gpt-tiny", "running.txt", *SHORT, "data.max_len=64", "decode.max_len=20"),
    "gpt2": ("gpt2-small", "running.txt", *SHORT, "tokenizer.vocab_size=300", "train.accumulate=1"),
    "encoder": ("bert-tiny", "running.txt", *TEXTS),
    "classifier": ("bert-classify", "labelled.tsv", *TEXTS),
    "tagger": ("bert-tag", "tagged.tsv", *TEXTS),
    "answerer": ("bert-answer", "questions.jsonl", *TEXTS),
    "classifier of pairs": (
        *("bert-classify", "facts.jsonl", *TEXTS, "data.text=premise", "data.pair=hypothesis"),
        "data.label=label",
    ),
    "recurrent classifier": ("lstm-classify", "labelled.tsv", "tokenizer.vocab_size=200"),
    "recurrent tagger": ("lstm-tag", "tags.jsonl", "tokenizer.vocab_size=200"),
    "captioner": ("caption-tiny", "scenes"),
    "listener": ("speech-tiny", "spoken"),
    "image model": ("vit-tiny", "photographs"),
    "digit reader": ("vit-digits", "digits/digits.npz"),
    "sorter": ("pointer-sort",),
    "huller": ("pointer-hull",),
    "traveller": ("pointer-tsp",),
    "parser": ("parse-tiny", "trees/train.trees"),
    "copier": ("see-2017", "telegrams/train.tsv"),
    "summarizer": ("summarize-tiny", "telegrams/train.tsv"),
    "combiner": ("sources-paraphrases",),
    "combiner of sounds": ("sources-spoken",),
    "protein model": ("proteins-tiny", "proteins/train.jsonl"),
    "letter model": ("lstm-tiny", "running.txt", "data.max_len=64"),
    "elmo": ("elmo-tiny", "running.txt", "tokenizer.vocab_size=200"),
    "memory network": ("lstmn-tiny", "running.txt", "data.max_len=64"),
    "recurrent translator": ("bahdanau-2015", "pairs.tsv", "data.world=0"),
}
"""Runs: their preset, the data they are trained on (None: what the preset makes up), and settings."""

MAKERS = {
    "pairs.tsv": lambda own, path: own.pairs(path),
    "running.txt": lambda own, path: path.write_text(own.running_text(), encoding="utf-8"),
    "some.txt": lambda own, path: path.write_text(own.running_text()[:600], encoding="utf-8"),
    "english.txt": written("".join(f"{line}\n" for line in ENGLISH) * 8),
    "french.txt": written("".join(f"{line}\n" for line in FRENCH) * 8),
    "labelled.tsv": written("".join(f"the day was {one}\t{one}\n" for one in ("good", "bad")) * 8),
    "sentence-pairs.tsv": written("sentence1\tsentence2\tlabel\n" + "the sun\tthe sea\t0\nthe king\tthe king\t1\n" * 8),
    "tagged.tsv": written("the\tO\nAda\tB-PER\n\nLondon\tB-LOC\nwas\tO\n\n" * 8),
    "tags.jsonl": jsonl({"words": ["the", "cat", "sleeps"], "tags": ["D", "N", "V"]}),
    "questions.jsonl": jsonl(
        {"question": "who wrote it?", "context": "the book is by Ada", "answer": "Ada", "start": 15}
    ),
    "facts.jsonl": jsonl(
        {"premise": "the sun was good", "hypothesis": "it was good", "label": "yes", "de": "gut", "en": "good"},
        {"premise": "the sun was good", "hypothesis": "it was bad", "label": "no", "de": "schlecht", "en": "bad"},
    ),
    "reviews.txt": written("a good day\nthe bad sea\n"),
    "headlines.txt": written("the sun was good\n" * 300),
    "articles.txt": written("the sun was good and the sea was bad .\n" * 300),
    "keys.txt": written("a-key-of-forty-characters-for-tests-only\n"),
    "points.csv": written("0.1,0.2\n0.8,0.3\n0.5,0.9\n0.2,0.7\n"),
    "points.jsonl": jsonl({"points": [[0.1, 0.2], [0.8, 0.3], [0.5, 0.9], [0.2, 0.7]]}, count=2),
    "rows.jsonl": jsonl(["the ▒ cat sleeps", "it is the old cat that ▒"], count=2),
    "sounds.tsv": written("about\tAH B AW T\ncat\tK AE T\n" * 8),
    "trees.mrg": written("( (S (NP (DT the) (NN cat)) (VP (VBZ sleeps)) (. .)) )\n" * 40),
    "settings.toml": written(
        '[data]\ntrain = ["pairs.tsv"]\nmax_len = 64\n[model]\nname = "transformer"\nwidth = 32\nheads = 2\n'
        "encoder_layers = 1\ndecoder_layers = 1\nfeed_forward = 32\n"
    ),
    "shards": shards,
    "english shards": compressed(ENGLISH),
    "french shards": compressed(FRENCH),
    "pairs.csv.gz": table,
    "vectors.txt": vectors,
    "corpus": corpus,
    "photographs": photographs,
    "photograph": photograph,
    "emoji": emoji,
    "sound.wav": sound,
    "sounds": sounds,
    "recordings.tsv": recordings,
    "whisper": whisper,
    "distilbert": distilbert,
    "marian": marian,
    "chat model": chat_model,
    "sentence encoder": sentence_encoder,
    "translator with a checkpoint": with_a_checkpoint,
    "translator with a shortlist": with_a_shortlist,
    "lecture": lambda own, path: shutil.copy(ROOT / "examples/lecture.en", path),
}

NAMES = {
    **dict.fromkeys(("train.tsv", "valid.tsv", "val.tsv", "test.tsv", "mine.tsv", "pairs.tsv"), "pairs.tsv"),
    **dict.fromkeys(("held-out.tsv",), "pairs.tsv"),
    **{f"{name}.en": "english.txt" for name in ("train", "valid", "val", "test", "large")},
    **{f"{name}.{one}": "french.txt" for name in ("train", "valid", "val", "test") for one in ("fr", "de", "nl")},
    **{f"{name}.txt": "running.txt" for name in ("corpus", "book", "train", "articles")},
    **{f"{name}.txt": "some.txt" for name in ("held-out", "another", "sentences", "long", "valid", "test", "texts")},
    **{f"{name}.txt": "some.txt" for name in ("story", "prompts")},
    **{"films.tsv": "labelled.tsv", "reviews.tsv": "labelled.tsv", "dev.tsv": "labelled.tsv"},
    **{"names.tsv": "tagged.tsv", "pairs.jsonl": "facts.jsonl", "words.tsv": "sounds.tsv", "my.toml": "settings.toml"},
    **{"problems.jsonl": "points.jsonl", "cities.csv": "points.csv", "combined.mrg": "trees.mrg", "treebank": "trees"},
    **{"treebank.mrg": "trees.mrg", "runs/multi30k": "translator"},
    **{"glove.6B.50d.txt": "vectors.txt", "en": "english shards", "fr": "french shards", "scratch/emoji": "emoji"},
    **{"flowers": "photographs", "photos": "photographs", "more-flowers": "photographs", "folder": "sounds"},
    **dict.fromkeys(("rose.jpg", "tulip.jpg", "cat.jpg", "photo.png", "scene.png"), "photograph"),
    **{"talk.wav": "sound.wav", "call.wav": "sound.wav", "words": "spoken rows", "examples/lecture.en": "lecture"},
    **{name: name for name in ("tags.jsonl", "questions.jsonl", "reviews.txt", "headlines.txt", "keys.txt")},
    **{name: name for name in ("rows.jsonl", "shards", "pairs.csv.gz", "vectors.txt", "corpus", "recordings.tsv")},
    **{name: name for name in ("scenes", "spoken", "proteins", "telegrams", "problems", "digits", "trees")},
    **{f"runs/{name}": "translator" for name in ("demo", "mine", "demo-2", "demo-3", "fast", "one", "other", "base")},
    **{f"runs/{name}": "translator" for name in ("smaller", "en-de")},
    **{
        "runs/words": "language model",
        "runs/shakespeare": "language model",
        "runs/bert": "encoder",
        "runs/gpt2": "gpt2",
    },
    **{"runs/films": "classifier", "runs/names": "tagger", "runs/tags": "recurrent tagger", "runs/answers": "answerer"},
    **{"runs/entails": "classifier of pairs", "runs/reviews": "recurrent classifier", "runs/scenes": "captioner"},
    **{"runs/emoji": "captioner", "runs/digits": "listener", "runs/flowers": "image model", "runs/sort": "sorter"},
    **{"runs/hull": "huller", "runs/tsp": "traveller", "runs/trees": "parser", "runs/fine": "parser"},
    **{"runs/telegrams": "copier", "runs/headlines": "summarizer", "runs/two": "combiner"},
    **{"runs/proteins": "protein model", "runs/letters": "letter model", "runs/elmo": "elmo"},
    **{"runs/lstmn": "memory network", "runs/bahdanau": "recurrent translator", "runs/history": "history"},
    **{"runs/whisper": "imported whisper", "runs/smollm2": "imported chat model", "runs/vit-base": "image model"},
    **{"runs/minilm": "imported sentence encoder", "runs/opus": "imported marian"},
    **{"downloads/bert": "checkpoint of an encoder", "downloads/gpt2": "checkpoint of a language model"},
    **{"downloads/all-MiniLM-L6-v2": "sentence encoder", "downloads/distilbert-sst2": "distilbert"},
    **{"downloads/opus-mt-en-fr": "marian", "downloads/vit-base": "checkpoint of an image model"},
    **{"downloads/whisper-tiny.en": "whisper", "smollm2": "chat model"},
}
"""What stands under a name of the documents."""

MEANT = [
    ("data.text=sentence1", "train.tsv", "sentence-pairs.tsv"),
    *(("bert-classify", name, "labelled.tsv") for name in ("train.tsv", "held-out.tsv")),
    *(("bert-tune", name, "labelled.tsv") for name in ("train.tsv", "held-out.tsv")),
    ("lstm-classify", "held-out.tsv", "labelled.tsv"),
    ("bert-tag", "held-out.tsv", "tagged.tsv"),
    ("runs/films --data", "test.tsv", "labelled.tsv"),
    ("caption runs/", "folder", "photographs/test/rose"),
    *(("distill", f"runs/{name}", "teacher") for name in ("demo", "mine", "base", "other")),
    ("images.md", "runs/digits", "digit reader"),
    ("sources.md", "runs/words", "combiner of sounds"),
    ("sources-ambiguous", "scenes", "ambiguous rows"),
    ("summaries.md", "runs/telegrams", "summarizer"),
    ("--data scenes/", "runs/mine", "captioner"),
    ("--data spoken/", "runs/mine", "listener"),
    ("runs/one runs/two", "runs/two", "translator"),
    ("--shortlist", "runs/demo", "translator with a shortlist"),
    ("--engine-files", "small", "exported translator"),
    ("step-500", "runs/demo", "translator with a checkpoint"),
    ("summarize-recurrent", "articles.txt", "articles.txt"),
]
"""(what is in the page and the line, name, kind): names that mean another thing there."""
