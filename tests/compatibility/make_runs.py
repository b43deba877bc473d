"""Writes the run directories of `runs_0_1_0/` and what they were trained on, with the version that is installed.

    OMP_NUM_THREADS=1 python tests/compatibility/make_runs.py [NAME ...]

It was run once, by hand, with regard 0.1.0 (commit ebe4fed). `test_runs_of_0_1_0.py` then asks every later version the
same questions. Run again it replaces what was recorded, so a later version must never run it over `runs_0_1_0`: it
refuses to. Runs of a later format belong in a folder of their own.

Every run is tiny: some 10 wide, a vocabulary of some 150 words, a second or two of training. Texts are drawn from the
bundled grammar, problems from the puzzles, pictures from numpy's generator; nothing comes from elsewhere. Files are
saved by a placeholder for their folder, and caches are deleted. Runs that are to be resumed were stopped by a signal in
the middle of an epoch and keep their checkpoints.

A model that hesitates between two tokens would choose another on another CPU. So each question is also put to a few
copies of the model with slightly shaken weights, and kept only if all of them give the same texts.
"""

import json
import os
import random
import shutil
import signal
import sys
import tempfile
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from outputs import DATA, PLACE, RUNS, Told, called, commanded, differences, environment, logged, placed, resumed

import regard
from regard.errors import RegardError

VERSION, COMMIT = "0.1.0", "ebe4fed"
SHAKEN, SHAKE = 3, 2e-5
"""How many copies of a model are asked the same, and by how much their weights differ, relative to each."""
STEADY = 5e-3
"""How far the numbers of shaken models may lie apart; a text that changes moves a score by more."""

EVERY_RUN = ["train.device=cpu", "train.threads=1", "train.precision=float32", "train.log_every=5"]
SMALL_TRANSFORMER = ["model.width=8", "model.heads=2", "model.feed_forward=16", "model.max_len=48"]
SMALL_ENCODER = [*SMALL_TRANSFORMER, "model.layers=2", "data.max_len=32", "tokenizer.vocab_size=120"]
WORDS = ["tokenizer.vocab_size=150", "model.max_len=48", "data.max_len=48"]


def training(steps: int, *, every: int | None = None, batch: int = 400, rate: float = 0.02) -> list[str]:
    """Settings of a short training with a high rate."""
    return [
        f"train.steps={steps}",
        f"train.batch_tokens={batch}",
        f"train.learning_rate={rate}",
        "train.warmup=10",
        f"train.validate_every={every or steps}",
        f"train.save_every={every or steps}",
        "train.validate_sentences=6",
    ]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A run to save: from which preset and data, stopped after which step if it is to be resumed, and what to ask it.

    Of `calls`, every list of candidates gives the first few that shaken models agree on.
    """

    preset: str
    settings: list[str]
    data: dict[str, Any]
    calls: list[list[dict[str, Any]]]
    commands: list[list[str]]
    stop: int | None = None
    start_from: str | None = None
    score_on: str | None = None
    """A file to be scored on instead of the run's own validation set."""


def files(suffix: str) -> dict[str, Any]:
    return {part: [f"{part}{suffix}"] for part in ("train", "valid")}


def translating(texts: list[str], *more: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """Greedy and by beam, sampled, in a batch, and scored."""
    one = [{"call": "translations", "arguments": [[text]]} for text in texts]
    settings = ({"beam": 1}, {"beam": 4, "top_beams": 3}, {"temperature": 0.7, "samples": 2, "seed": 3})
    asked = [[{**call, "settings": {**chosen, "max_len": 12}} for call in one] for chosen in settings]
    batch = [
        {"call": "translate", "arguments": [texts[at : at + 4]], "settings": {"beam": 2, "max_len": 12}}
        for at in range(len(texts) - 3)
    ]
    scored = [
        {"call": "evaluate", "settings": {"limit": limit, "beam": beam, "max_len": 14}}
        for limit in range(12, 3, -2)
        for beam in (2, 1)
    ]
    return [*asked, batch, scored, *([call] for call in more)]


def generating(prompts: list[str], length: int = 12, beams: bool = True) -> list[list[dict[str, Any]]]:
    """Greedy, sampled and by beam, and the perplexity of the validation text."""
    settings: list[dict[str, Any]] = [{"temperature": 0}, {"temperature": 0.8, "samples": 2, "seed": 5}]
    settings += [{"beam": 3, "top_beams": 2}] if beams else []
    asked = [
        [{"call": "generate", "arguments": [prompt], "settings": {**chosen, "max_len": length}} for prompt in prompts]
        for chosen in settings
    ]
    return [*asked, [{"call": "evaluate"}]]


def one_each(call: str, arguments: list[list[Any]], **settings: Any) -> list[dict[str, Any]]:
    return [{"call": call, "arguments": given, "settings": settings} for given in arguments]


KNOWN = {
    *(".", "the", "this", "a", "is", "was", "old", "beautiful", "big", "small", "white", "young", "red", "black"),
    *("king", "goat", "father", "girl", "dog", "mother", "boy", "cow", "woman", "man", "queen", "mouse", "horse"),
    *("cat", "hen", "animal", "thirsty", "sick", "tired", "hungry"),
}
"""The words of the texts: few enough for a very small model to learn something."""
SOURCES = [
    "The old cat is sick.",
    "A girl was hungry.",
    "This mother is tired.",
    "The big horse was thirsty.",
    "This young king is sick.",
    "A small mouse is tired.",
    "The queen was hungry.",
    "A black dog is thirsty.",
    "This boy was sick.",
    "The cow is tired.",
    "This white goat was hungry.",
    "A beautiful woman is thirsty.",
]
FRENCH = [
    "Le chat est malade.",
    "Une fille était affamée.",
    "Cette mère est fatiguée.",
    "Le grand cheval était assoiffé.",
    "Ce jeune roi est malade.",
    "Une petite souris est fatiguée.",
    "La reine était affamée.",
]
UNKNOWN = ["The zebra is sick.", "This old llama was tired.", "A yak was hungry.", *SOURCES]
PROMPTS = ["The ", "A ", "This ", "The dog ", "This old ", "The mother ", "A young "]
WORD_PROMPTS = ["The", "A", "This", "The dog", "This old", "The mother", "A young"]
MASKED = ["The [MASK] is sick.", "[MASK] dog was tired.", "The mother [MASK] hungry [MASK]", "A [MASK] is thirsty."]
PLAIN = SOURCES[:6]
VECTORS = [{"call": "embed", "arguments": [PLAIN[:3]]}]
POOLED = [{"call": "embed", "arguments": [PLAIN[:2]], "settings": {"pooling": "first", "normalise": False}}]
RUN = "@RUN@"
CPU = ["--device", "cpu"]
TRANSLATE = [["translate", RUN, text, "--beam", "3", "--max-len", "12", "--json", *CPU] for text in SOURCES]
GENERATE = [
    ["generate", RUN, text, "--temperature", "0", "--max-tokens", "10", "--json", *CPU] for text in WORD_PROMPTS
]
NUMBERS = [[0.31, 0.84, 0.15, 0.62], [0.9, 0.2, 0.55, 0.05, 0.7], [3, 1, 2, 9], [0.5, 0.1, 0.93, 0.3, 0.72]]
POINTS = [
    [[0.1, 0.2], [0.9, 0.15], [0.8, 0.85], [0.2, 0.9], [0.5, 0.4]],
    [[0.3, 0.3], [0.7, 0.1], [0.95, 0.6], [0.4, 0.9], [0.05, 0.5]],
    [[0.2, 0.1], [0.6, 0.3], [0.9, 0.9], [0.1, 0.7]],
]


def pointing(problems: list[Any]) -> list[list[dict[str, Any]]]:
    return [
        one_each("point", [[[problem]] for problem in problems], beam=1),
        one_each("point", [[[problem]] for problem in problems], beam=3),
        [{"call": "evaluate", "settings": {"limit": limit}} for limit in (12, 11, 10, 9, 8, 7, 6, 5, 4)],
    ]


CLASSES = [
    one_each("classify", [[PLAIN[at : at + 2]] for at in range(4)]),
    [{"call": "evaluate"}],
]
TAGS = [one_each("tag", [[[text]] for text in PLAIN]), [{"call": "evaluate"}]]
PICTURES = [{"file": "asked.npz", "array": "images", "rows": [at, at + 1, at + 2]} for at in range(4)]

RECIPES = {
    "transformer": Recipe(
        preset="tiny",
        settings=[
            *SMALL_TRANSFORMER,
            *training(300, every=60),
            "tokenizer.vocab_size=420",
            "data.max_len=48",
            "model.encoder_layers=1",
            "model.decoder_layers=1",
            "train.ema=0.95",
            "train.keep=1",
        ],
        data=files("-pairs.tsv"),
        calls=translating(
            SOURCES, {"call": "translations", "arguments": [[" ".join(SOURCES[:2] * 6)]], "settings": {"beam": 1}}
        ),
        commands=TRANSLATE,
        stop=291,
    ),
    "transformer-muon-packed": Recipe(
        preset="demo",
        settings=[
            *SMALL_TRANSFORMER,
            *training(200, every=10),
            *WORDS,
            "model.encoder_layers=1",
            "model.decoder_layers=1",
            "model.positions=rotary",
            "train.optimizer=muon",
            "train.pack=always",
            "train.average_last=2",
            "train.keep=2",
            "data.world=0",
        ],
        data=files("-pairs.tsv"),
        calls=translating(SOURCES),
        commands=TRANSLATE,
        stop=193,
    ),
    "bahdanau": Recipe(
        preset="bahdanau-2015",
        settings=[
            *WORDS,
            "tokenizer.vocab_size=100",
            *training(200),
            "model.width=8",
            "data.world=300",
            "data.world_grammar=plain",
        ],
        data={},
        # Scored on a file: alignments of the bundled corpus would take a minute.
        calls=[[call for call in calls if call["call"] != "evaluate"] for calls in translating(SOURCES)],
        score_on="valid-pairs.tsv",
        commands=TRANSLATE,
    ),
    "sutskever": Recipe(
        preset="sutskever-2014",
        settings=[*WORDS, *training(200), "model.width=8", "data.world=0", "data.source=fr", "data.target=en"],
        data=files("-pairs.jsonl"),
        calls=translating(FRENCH),
        commands=[[*line[:2], text, *line[3:]] for line, text in zip(TRANSLATE, FRENCH, strict=False)],
    ),
    "gehring": Recipe(
        preset="gehring-2017",
        settings=[
            *WORDS,
            *training(200),
            "model.width=12",
            "model.encoder_layers=1",
            "model.decoder_layers=1",
            "tokenizer.source_kind=unigram",
            "data.world=0",
        ],
        data={"train": ["train.en", "train.fr"], "valid": ["valid.en", "valid.fr"]},
        calls=translating(SOURCES),
        commands=TRANSLATE,
    ),
    "see-copying": Recipe(
        preset="see-2017",
        settings=[*WORDS, *training(180, every=60), "model.width=8", "tokenizer.min_count=2", "train.keep=1"],
        data=files("-copies.tsv"),
        calls=translating(UNKNOWN),
        commands=TRANSLATE,
        stop=173,
    ),
    "gpt": Recipe(
        preset="gpt-tiny",
        settings=[
            *SMALL_TRANSFORMER,
            *training(160, every=30, batch=256),
            "model.layers=2",
            "model.dropout=0.1",
            "data.max_len=32",
            "data.isolate=true",
            "train.choose=best",
            "train.accumulate=2",
        ],
        data=files("-texts.jsonl"),
        calls=generating(PROMPTS, 16),
        commands=GENERATE,
        stop=153,
    ),
    "lstm-carried": Recipe(
        preset="lstm-words",
        settings=[
            *training(160, every=40, batch=128),
            "model.width=8",
            "model.max_len=16",
            "data.max_len=16",
            "tokenizer.vocab_size=150",
            "train.keep=1",
            "train.choose=last",
        ],
        data=files(".txt"),
        calls=generating(WORD_PROMPTS),
        commands=GENERATE,
        stop=153,
    ),
    "rwkv-carried": Recipe(
        preset="rwkv-tiny",
        settings=[
            *training(150, batch=256, every=50),
            "model.width=8",
            "model.layers=2",
            "model.feed_forward=16",
            "model.max_len=32",
            "data.max_len=32",
            "train.keep=1",
        ],
        data=files(".txt"),
        calls=generating(PROMPTS, 16),
        commands=GENERATE,
        stop=145,
    ),
    "lstmn-carried": Recipe(
        preset="lstmn-tiny",
        settings=[
            *training(100, batch=256, every=50),
            "model.width=8",
            "model.span=8",
            "model.max_len=32",
            "data.max_len=16",
            "train.keep=1",
        ],
        data=files(".txt"),
        calls=generating(PROMPTS, 16),
        commands=GENERATE,
        stop=94,
    ),
    "elmo": Recipe(
        preset="elmo-tiny",
        settings=[*training(120, batch=256), "model.width=8", *WORDS],
        data=files(".txt"),
        calls=[VECTORS, *generating(WORD_PROMPTS, beams=False)],
        commands=[["embed-text", RUN, PLAIN[0], "--json", *CPU]],
    ),
    "merity-pointer": Recipe(
        preset="merity-2017",
        settings=[*training(120, batch=256), "model.width=8", "model.pointer=10", *WORDS],
        data=files(".txt"),
        calls=generating(WORD_PROMPTS),
        commands=GENERATE,
    ),
    "bert": Recipe(
        preset="bert-tiny",
        settings=[
            *SMALL_ENCODER,
            *training(240, batch=400, every=60, rate=0.005),
            "data.whole_words=true",
            "train.keep=1",
        ],
        data=files(".txt"),
        calls=[one_each("fill", [[text] for text in MASKED], top=3), VECTORS, POOLED, [{"call": "evaluate"}]],
        commands=[["fill", RUN, text, "--json", *CPU] for text in MASKED],
        stop=235,
    ),
    "bert-classes": Recipe(
        preset="bert-classify",
        settings=[
            *training(150, every=40, rate=0.005),
            "data.max_len=32",
            "train.layer_decay=0.8",
            "train.r_drop=1.0",
            "train.keep=1",
        ],
        data=files("-classes.tsv"),
        calls=[*CLASSES, VECTORS],
        commands=[["classify", RUN, text, "--top", "2", "--json", *CPU] for text in PLAIN],
        start_from="bert",
        stop=143,
    ),
    "lstm-classes-of-pairs": Recipe(
        preset="lstm-classify",
        settings=[*training(100), "model.width=8", *WORDS],
        data={**files("-pairs-classes.jsonl"), "text": "one", "pair": "two", "label": "same"},
        calls=[
            one_each("classify", [[[[PLAIN[at], PLAIN[at + 1]], [PLAIN[at], PLAIN[at]]]] for at in range(4)]),
            [{"call": "evaluate"}],
        ],
        commands=[["classify", RUN, text, text, "--json", *CPU] for text in PLAIN],
    ),
    "bert-tags": Recipe(
        preset="bert-tag",
        settings=[*SMALL_ENCODER, *training(120, rate=0.01)],
        data=files("-tags.tsv"),
        calls=TAGS,
        commands=[["tag", RUN, text, "--json", *CPU] for text in PLAIN],
    ),
    "lstm-tags": Recipe(
        preset="lstm-tag",
        settings=[*training(100), "model.width=8", *WORDS],
        data=files("-tags.jsonl"),
        calls=[*TAGS, one_each("tag", [[[text.split()]] for text in PLAIN])],
        commands=[["tag", RUN, text, "--json", *CPU] for text in PLAIN],
    ),
    "bert-answers": Recipe(
        preset="bert-answer",
        settings=[*SMALL_ENCODER, *training(150, rate=0.01)],
        data=files("-answers.jsonl"),
        calls=[one_each("answer", [["who?", text] for text in PLAIN], top=2), [{"call": "evaluate"}]],
        commands=[["answer", RUN, "who?", text, "--json", *CPU] for text in PLAIN],
    ),
    "vit": Recipe(
        preset="vit-digits",
        settings=[
            *training(100, every=30, batch=340, rate=0.01),
            "model.width=8",
            "model.heads=2",
            "model.layers=2",
            "model.feed_forward=16",
            "images.mixup=0.2",
            "train.ema=0.9",
            "train.keep=1",
        ],
        data={"train": ["pictures.npz"]},
        calls=[one_each("classify", [[picture] for picture in PICTURES]), [{"call": "evaluate"}]],
        commands=[["classify", RUN, f"{PLACE}/{DATA.name}/asked.npz", "--json", *CPU]],
        stop=94,
    ),
    "pointer-sort": Recipe(
        preset="pointer-sort",
        settings=[
            *training(200, every=90, batch=200),
            "model.width=8",
            "model.heads=2",
            "model.encoder_layers=1",
            "model.feed_forward=16",
            "data.puzzle_sizes=[3,5]",
            "train.keep=1",
        ],
        data={},
        calls=pointing(NUMBERS),
        commands=[["point", RUN, json.dumps(problem), "--json", *CPU] for problem in NUMBERS],
        stop=193,
    ),
    "pointer-hull": Recipe(
        preset="pointer-hull",
        settings=[
            *training(150, every=60, batch=200),
            "model.width=8",
            "model.heads=2",
            "model.encoder_layers=1",
            "model.feed_forward=16",
            "data.puzzle_sizes=[4,6]",
            "train.keep=1",
        ],
        data=files("-hulls.jsonl"),
        calls=pointing(POINTS),
        commands=[["point", RUN, json.dumps(problem), "--json", *CPU] for problem in POINTS],
        stop=143,
    ),
    "pointer-tsp": Recipe(
        preset="pointer-tsp",
        settings=[
            *training(150, batch=200),
            "model.width=8",
            "model.heads=2",
            "model.encoder_layers=1",
            "model.feed_forward=16",
            "data.puzzle_sizes=[4,6]",
        ],
        data={},
        calls=pointing(POINTS),
        commands=[["point", RUN, json.dumps(problem), "--json", *CPU] for problem in POINTS],
    ),
}


def write_data(folder: Path) -> None:
    """All that the runs are trained on."""
    folder.mkdir(parents=True, exist_ok=True)
    for part, count in (("train", 160), ("valid", 12)):
        _write_texts(folder, part, count)
    _write_pictures(folder)


def _write_texts(folder: Path, part: str, count: int) -> None:
    from regard.data.synthetic.puzzles import PUZZLES, sample_problems, write_problems
    from regard.data.synthetic.world import sentences

    dice = random.Random(part)
    drawn_sentences = sentences(5000, seed=7, split=part, lengths=(4, 6), grammar="plain")  # type: ignore[arg-type]
    simple = (one for one in drawn_sentences if {word.lower() for word in one.english_words} <= KNOWN)
    pairs = [(one.english, one.french) for one in islice(simple, count)]
    english, french = [one for one, _ in pairs], [other for _, other in pairs]

    def write(suffix: str, lines: list[str]) -> None:
        (folder / f"{part}{suffix}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    write("-pairs.tsv", [f"{one}\t{other}" for one, other in pairs])
    write("-pairs.jsonl", [_json({"en": one, "fr": other}) for one, other in pairs[: count // 2]])
    write(".en", english[: count // 2])
    write(".fr", french[: count // 2])
    write("-copies.tsv", [f"{one}\t{' '.join(reversed(one.split()))}" for one in english[: count // 2]])
    write(".txt", [line for at, one in enumerate(english) for line in ([one, ""] if at % 4 == 3 else [one])])
    documents = [english[at : at + 4] for at in range(0, count, 4)]
    write("-texts.jsonl", [_json({"text": " ".join(one)}) for one in documents])
    write("-classes.tsv", [f"{one}\t{_class(one)}" for one in english])
    rows = [(one, dice.choice([one, dice.choice(english)])) for one in english[: count // 2]]
    write("-pairs-classes.jsonl", [_json({"one": a, "two": b, "same": "yes" if a == b else "no"}) for a, b in rows])
    write("-tags.tsv", [line for one in english for line in [*(f"{word}\t{tag}" for word, tag in _tags(one)), ""]])
    tagged = [_tags(one) for one in english[: count // 2]]
    write("-tags.jsonl", [_json({"words": [w for w, _ in one], "tags": [t for _, t in one]}) for one in tagged])
    asked = [{"context": one, "question": "who?", "answer": one.split()[-3]} for one in english]
    write("-answers.jsonl", [_json(one) for one in asked])
    hulls = sample_problems(PUZZLES["hull"], 60 if part == "train" else 12, (4, 6), seed=1, part=part)  # type: ignore[arg-type]
    write_problems(folder / f"{part}-hulls.jsonl", PUZZLES["hull"], hulls)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _class(text: str) -> str:
    return {"The": "definite", "A": "indefinite", "This": "demonstrative"}[text.split()[0]]


def _tags(text: str) -> list[tuple[str, str]]:
    """Articles and what follows them as an entity of two words."""
    words = [*text.removesuffix(".").split(), "."]
    tags = ["O"] * len(words)
    for at, word in enumerate(words[:-2]):
        if word.lower() in ("the", "a", "this"):
            tags[at : at + 2] = ["B-THING", "I-THING"]
    return list(zip(words, tags, strict=True))


def _write_pictures(folder: Path) -> None:
    """Spots brighter than their ground, or darker."""
    rng = np.random.default_rng(0)

    def draw(count: int) -> tuple[np.ndarray, np.ndarray]:
        pictures, labels = rng.integers(0, 80, (count, 8, 8), dtype=np.uint8), []
        for picture in pictures:
            top, left = rng.integers(0, 6, 2)
            picture[top : top + 3, left : left + 3] = rng.integers(180, 255)
            labels.append(str(rng.choice(["dark", "light"])))
            if labels[-1] == "light":
                picture[:] = 255 - picture
        return pictures, np.array(labels)

    arrays = {}
    for part, count in (("train", 60), ("valid", 12)):
        arrays[f"{part}_images"], arrays[f"{part}_labels"] = draw(count)
    np.savez_compressed(folder / "pictures.npz", **arrays)
    np.savez_compressed(folder / "asked.npz", images=draw(6)[0])


class StopAt(Told):
    """Asks training to stop, as a signal would, after a step that is logged."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self.wanted = step

    def step(self, values: Any, total: int) -> None:
        if values["step"] == self.wanted:
            os.kill(os.getpid(), signal.SIGTERM)


def make(name: str, recipe: Recipe, folder: Path) -> None:
    """Train a run in `folder`, ask it everything, and save it."""
    directory = folder / RUNS.name / name
    data = {
        key: [str(folder / DATA.name / one) for one in value] if isinstance(value, list) else value
        for key, value in recipe.data.items()
    }
    extra: dict[str, Any] = {"data": data}
    if recipe.start_from:
        extra["train"] = {"start_from": str(folder / RUNS.name / recipe.start_from)}
    every = ["train.log_every=1"] if recipe.stop else []
    config = regard.make_config(None, recipe.preset, [*EVERY_RUN, *recipe.settings, *every], extra)
    if recipe.stop:
        train_until(recipe.stop, config, directory)
    else:
        regard.train(config, directory)
    shutil.rmtree(directory / "cache", ignore_errors=True)
    if recipe.stop:
        shorten_log(directory, recipe.stop)
    else:
        shutil.rmtree(directory / "checkpoints")
    expected = {
        "version": VERSION,
        "commit": COMMIT,
        "environment": environment(),
        **answers(directory, recipe, folder),
    }
    save(directory, name, folder)
    expected["log"] = logged(RUNS / name)
    if recipe.stop:
        with tempfile.TemporaryDirectory() as elsewhere:
            expected["resumed"] = resumed(placed(name, Path(elsewhere).resolve()))
    text = (
        json.dumps(expected, ensure_ascii=False, separators=(",", ":"))
        .replace('{"call":', '\n{"call":')
        .replace('{"command":', '\n{"command":')
    )
    (RUNS / name / "expected.json").write_text(text + "\n", encoding="utf-8")


def train_until(step: int, config: Any, directory: Path) -> None:
    """Train, and stop after this step, which must not be an epoch's last."""
    try:
        regard.train(config, directory, StopAt(step))
    except RegardError as error:
        if "stopped at step" not in str(error):
            raise
    progress = json.loads((directory / "checkpoints" / f"step-{step}" / "progress.json").read_text(encoding="utf-8"))
    if not progress["index"]:
        sys.exit(f"{directory.name}: step {step} ends an epoch; stop elsewhere")


def shorten_log(directory: Path, step: int) -> None:
    """Of the records before the last ten steps every tenth is enough."""
    lines = (directory / "log.jsonl").read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if (record := json.loads(line))["step"] > step - 10 or record["step"] % 10 == 0]
    (directory / "log.jsonl").write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")


def save(directory: Path, name: str, folder: Path) -> None:
    """Copy the run into the repository, its files named by a placeholder."""
    shutil.rmtree(RUNS / name, ignore_errors=True)
    saved = shutil.copytree(directory, RUNS / name, ignore=shutil.ignore_patterns("cache", "*.lock"))
    config = saved / "config.json"
    config.write_text(config.read_text(encoding="utf-8").replace(folder.as_posix(), PLACE), encoding="utf-8")


def answers(directory: Path, recipe: Recipe, folder: Path, each: int = 2) -> dict[str, Any]:
    """What the run answers to what it can be asked without hesitation."""
    run = regard.load(directory, "cpu")
    shaken = [shaken_copy(directory, seed) for seed in range(SHAKEN)]
    kept = []
    for candidates in recipe.calls:
        steady = []
        for call in candidates:
            if len(steady) == (1 if call["call"] == "evaluate" else each):
                break
            result = called(run, call, folder)
            if not any(differences(called(other, call, folder), result, STEADY) for other in shaken):
                steady.append({**call, "result": result})
        if candidates and not steady:
            print(f"  {directory.name}: hesitates at every {candidates[0]['call']} {candidates[0].get('settings', '')}")
        kept += steady
    commands = [first_steady(lines, directory, folder) for lines in (recipe.commands, scoring(recipe))]
    return {"calls": kept, "commands": [command for command in commands if command]}


def scoring(recipe: Recipe) -> list[list[str]]:
    """Command lines that measure the run, on fewer examples each time where their number can be said."""
    limited = bool(recipe.score_on) or any(
        "limit" in call.get("settings", {}) for calls in recipe.calls for call in calls
    )
    counts = [["--limit", count, "--beam", beam] for count in "654" for beam in "21"] if limited else [[]]
    data = ["--data", f"{PLACE}/{DATA.name}/{recipe.score_on}"] if recipe.score_on else []
    return [["evaluate", RUN, *data, *count, "--json", *CPU] for count in counts]


def first_steady(lines: list[list[str]], directory: Path, folder: Path) -> dict[str, Any] | None:
    """The first command line whose output shaken models agree on."""
    name = f"{PLACE}/{RUNS.name}/{directory.name}"
    for line in lines:
        command = [name if word == RUN else word for word in line]
        result = commanded(command, folder)
        if steady_command(command, result, directory, folder):
            return {"command": command, "result": result}
    print(f"  {directory.name}: hesitates at every {lines[0][0]} command")
    return None


def shaken_copy(directory: Path, seed: int) -> Any:
    """The run with every weight changed a little."""
    run = regard.load(directory, "cpu")
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weights in run.model.parameters():
            weights.mul_(1 + SHAKE * torch.randn(weights.shape, generator=generator))
    return run


def steady_command(line: list[str], result: Any, directory: Path, folder: Path) -> bool:
    """Whether a command says the same of a run with shaken weights."""
    from safetensors.torch import load_file, save_file

    path = directory / "model.safetensors"
    before = path.read_bytes()
    try:
        for seed in range(SHAKEN):
            generator = torch.Generator().manual_seed(seed)
            path.write_bytes(before)
            weights = load_file(path)
            save_file(
                {
                    k: v * (1 + SHAKE * torch.randn(v.shape, generator=generator)) if v.is_floating_point() else v
                    for k, v in weights.items()
                },
                path,
            )
            if differences(commanded(line, folder), result, STEADY):
                return False
    finally:
        path.write_bytes(before)
    return True


def main() -> None:
    if regard.__version__ != VERSION:
        sys.exit(f"{RUNS.name} holds runs of regard {VERSION}; this is {regard.__version__}")
    torch.set_num_threads(1)
    names = sys.argv[1:] or list(RECIPES)
    wanted = [name for name in RECIPES if name in names or any(RECIPES[one].start_from == name for one in names)]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary).resolve()
        write_data(folder / DATA.name)
        if not sys.argv[1:]:
            shutil.rmtree(RUNS, ignore_errors=True)
        shutil.rmtree(DATA, ignore_errors=True)
        shutil.copytree(folder / DATA.name, DATA)
        for name in wanted:
            print(name, flush=True)
            make(name, RECIPES[name], folder)


if __name__ == "__main__":
    main()
