"""The shell blocks of the documents are run: every `regard` line, on small files and runs of the kinds it names.

Numbers that make it long (pairs to write, updates, problems) are made small first. The companion's blocks are run by
test_lectures.py. A line that is not run has a reason, by what is in it.
"""

import re
import shlex
import shutil
from pathlib import Path

import pytest
from test_docs import blocks

from regard.cli import main
from regard.tasks.config import make_config, presets

SIZES = ("--train", "--valid", "--test", "--combinations", "--families", "--world", "--limit")
"""Options that say how much is made or read."""

MOST = {"--families": 4}

ELSEWHERE = {
    # What waits or leaves the process.
    "regard serve": "listens until it is stopped; tests/serve",
    "--processes": "starts processes; tests/training/test_processes.py and tests/long",
    "regard --version": "ends the process; tests/cli",
    "--help": "ends the process; tests/cli",
    "--chat": "needs weights that are not in the repository; tests/text/test_chat.py",
    # What is not in the repository.
    "downloads/": "needs a checkpoint that is not in the repository; tests/parity imports and exports small ones",
    "import hf": "needs a checkpoint that is not in the repository; tests/parity imports and exports small ones",
    "smollm2": "needs weights that are not in the repository; tests/text/test_chat.py",
    "runs/minilm": "needs weights that are not in the repository; tests/parity/test_minilm.py",
    "runs/whisper": "needs weights that are not in the repository; tests/parity/test_whisper.py",
    "runs/vit-base": "needs weights that are not in the repository; tests/parity/test_huggingface_images.py",
    "emoji": "needs images that are not in the repository; tests/runs/test_captioning.py",
    "flowers": "needs photographs; tests/runs/test_images.py",
    "photos": "needs photographs; tests/runs/test_images.py",
    "photo.png": "needs photographs; tests/runs",
    "treebank": "needs a treebank; tests/runs and tests/data read a small one",
    "words.tsv": "needs a pronouncing dictionary; tests/runs",
    "pairs.csv.gz": "needs that file; tests/data/test_tables.py reads such",
    "pairs.jsonl": "needs that file; tests/data/test_tables.py reads such",
    "names.tsv": "needs tagged sentences; tests/runs/test_labelled_files.py",
    "tags.jsonl": "needs tagged sentences; tests/runs/test_labelled_files.py",
    "questions.jsonl": "needs questions; tests/runs/test_answering.py",
    "dev.tsv": "needs labelled texts of that name; tests/runs/test_labelled_files.py",
    "--valid held-out.tsv": "needs held-out pairs or labelled texts of that name; tests/runs",
    "scenes": "needs scenes; tests/runs/test_captioning.py and tests/runs/test_several_sources_runs.py",
    "spoken": "needs recordings; tests/runs/test_transcribing.py",
    "proteins/": "needs sequences; tests/runs/test_symbols.py",
    "telegrams/": "needs telegrams; tests/runs/test_summarization.py",
    "problems/": "needs problems; tests/runs/test_pointing.py",
    "digits/": "needs digits; tests/runs/test_images.py",
    "speech-tiny": "takes long to make its sounds; tests/runs/test_transcribing.py",
    "bert-tiny": "needs more text than is here; tests/runs/test_bert.py",
    "words/test": "needs recordings; tests/runs/test_several_sources_runs.py",
    "hf:": "needs a checkpoint that is fetched; tests/parity/test_looking_at_checkpoints.py",
    "regard follows": "needs a run trained on pairs of texts; tests/runs/test_bert.py",
    "--beside": "needs a checkpoint of that step; tests/look",
    "runs/letters": "needs a run of that name; tests/look",
    "runs/en-de": "needs a run of that name; tests/runs/test_fine_tuning.py",
    "elmo": "needs more text than is here; tests/models/test_readers.py",
    "resume runs/base": "needs a run of that name; tests/runs/test_training.py",
    "data.text=sentence1": "needs pairs of labelled texts; tests/runs",
    "articles.txt --data headlines.txt": "needs articles with headlines; tests/runs/test_summarization.py",
    "--fit": "needs a GPU; tests/training tries it with a stand-in",
    "--device cuda": "needs a GPU",
    "runs/films --data test.tsv": "needs labelled texts of that name; tests/cli/test_cli_evaluate.py",
    "--report tensorboard,wandb": "needs wandb; tests/training/test_trackers.py",
    # What takes minutes, however small.
    "regard compare": "trains several models; tests/runs/test_comparison.py",
    "regard bench": "times training for a minute; tests/runs/test_bench.py",
    "regard distill": "translates a whole training set; tests/cli/test_cli_distill.py",
    "--engine": "needs a model exported for that engine; tests/parity",
    "export hf": "writes for transformers; tests/parity exports a run of every family",
    "--shortlist": "needs a shortlist, which `regard shortlist` makes; tests/runs",
    "export ctranslate2": "takes long; tests/parity/test_ctranslate2.py",
    "export onnx": "takes long; tests/parity/test_onnx.py",
    "--world --limit": "takes long on the bundled corpus; tests/cli/test_cli_evaluate.py",
    "regard heads": "compares with 29 untrained models; tests/runs/test_heads.py",
    "regard doctor": "trains to overfit a batch; tests/training/test_guard_rails.py",
    "regard prune": "ranks heads on held-out data; tests/cli/test_cli_prune.py",
}
MINE = """
[data]
train = ["pairs.tsv"]
max_len = 64
[model]
name = "transformer"
width = 32
heads = 2
encoder_layers = 1
decoder_layers = 1
feed_forward = 32
"""
KINDS = {
    "sort|hull|tsp": "tests/runs/test_pointing.py",
    "scenes": "tests/runs/test_captioning.py",
    "digits|spoken": "tests/runs/test_transcribing.py",
    "trees|bank|fine": "tests/runs/test_parsing.py",
    "telegrams|headlines": "tests/runs/test_summarization.py",
    "two": "tests/runs/test_several_sources_runs.py",
    "names|answers|entails|tags|same": "tests/runs",
    "lstmn|bahdanau|history|shakespeare|en-de|smaller": "tests/runs and tests/models",
}
"""Runs of other kinds, whose lines take long to make ready: where such runs are made and used."""

LONG = ("regard train", "regard data", "--gradients", "regard vectors", "regard shortlist", "--edits", "evaluate")
"""Lines that take more than a second or two: run by `make docs-long`."""


def lines():
    """Every `regard` line, once, without pipes and redirections."""
    found = {}
    for block in blocks("bash"):
        if block.id.startswith("lectures/"):
            continue
        for line in block.values[0].replace("\\\n", " ").splitlines():
            plain = re.split(r"\s[|<>]\s", line.partition(" #")[0].strip())[0]
            if plain.startswith("regard "):
                found.setdefault(" ".join(plain.split()), None)
    return [*found]


def reason(line):
    """Why a line is not run, or None."""
    for mark, why in ELSEWHERE.items():
        if mark in line:
            return why
    out = re.search(r"--out runs/", line)
    for names, where in KINDS.items():
        if not out and re.search(rf"runs/(?:{names})\b", line):
            return f"needs a run of another kind; {where}"
    return None


def is_long(line):
    return any(mark in line for mark in LONG)


RUN = [line for line in lines() if reason(line) is None]


def small(line):
    """The words of a line with what makes it long made small."""
    words = shlex.split(line)[1:]
    for place, word in enumerate(words[:-1]):
        if word in SIZES and words[place + 1].isdecimal():
            words[place + 1] = str(min(int(words[place + 1]), MOST.get(word, 12)))
    words = [re.sub(r"^train\.steps=\d+$", "train.steps=3", word) for word in words]
    words = [re.sub(r"^model\.width=256$", "model.width=32", word) for word in words]
    if words[0] == "train" and "--resume" not in words:
        words += _brief(words)
    return words


def _brief(words):
    """Settings by which a training takes two updates of a narrow model."""
    settings = [
        "train.steps=2",
        "train.threads=1",
        "train.validate_every=100",
        "train.save_every=100",
        "train.device=cpu",
    ]
    given = {word.partition("=")[0] for word in words}
    if "--minutes" in words:
        place = words.index("--minutes")
        del words[place : place + 2]
    preset = words[words.index("--preset") + 1] if "--preset" in words else None
    if preset in presets() and "--from" not in words:
        config = make_config(preset=preset)
        model, data, decode = (config.every_setting().get(name, {}) for name in ("model", "data", "decode"))
        settings += ["decode.max_len=4"] * ("max_len" in decode) + ["train.validate_sentences=2"]
        narrow = {"width": 32, "heads": 2, "feed_forward": 32}
        settings += [f"model.{name}={value}" for name, value in narrow.items() if isinstance(model.get(name), int)]
        few = {"world": 40, "trees": 40, "telegrams": 40, "examples": 40, "scenes": 40, "spoken": 20, "utterances": 20}
        if "--data" not in words:
            settings += [f"data.{name}={value}" for name, value in few.items() if data.get(name)]
    return [part for one in settings if one.partition("=")[0] not in given for part in ("--set", one)]


def run(line, home, tmp_path, monkeypatch):
    monkeypatch.chdir(home)
    words = small(line)
    if "--out" in words or "-o" in words:
        place = next(words.index(name) for name in ("--out", "-o") if name in words) + 1
        words[place] = str(tmp_path / words[place])
    if "--resume" in words:
        place = words.index("--resume") + 1
        shutil.copytree(home / words[place], tmp_path / "resumed")
        words[place] = str(tmp_path / "resumed")
    if words[0] == "data":
        words[2] = str(tmp_path / words[2])
    if words[1:2] == ["my.toml"]:
        (home / "my.toml").write_text(MINE, encoding="utf-8")
    assert main(words) == 0, " ".join(words)


@pytest.mark.parametrize("line", [one for one in RUN if not is_long(one)])
def test_a_line_is_run(line, home, tmp_path, monkeypatch, capsys):
    run(line, home, tmp_path, monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize("line", [one for one in RUN if is_long(one)])
def test_a_longer_line_is_run(line, home, tmp_path, monkeypatch, capsys):
    run(line, home, tmp_path, monkeypatch)


def test_a_line_that_is_not_run_has_a_reason_and_a_reason_a_line():
    unused = [mark for mark in ELSEWHERE if not any(mark in line for line in lines())]
    assert not unused
    unused = [names for names in KINDS if not any(re.search(rf"runs/(?:{names})\b", line) for line in lines())]
    assert not unused
    assert len(RUN) > 0.4 * len(lines())


@pytest.mark.parametrize("why", sorted({*ELSEWHERE.values(), *KINDS.values()}))
def test_where_else_a_line_is_said_to_be_tried_is_there(why):
    root = Path(__file__).parents[2]
    for named in re.findall(r"tests/[\w/]+(?:\.py)?", why):
        assert (root / named).exists(), named
