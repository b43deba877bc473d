"""How good the first command's runs are: trained without a preset, on public data and on data that regard makes.

    python benchmarks/first_command.py prepare DATA --sets SETS
    python benchmarks/first_command.py run DATA OUT --on gpu --seeds 1 2 --together 2 --encoder runs/minilm
    python benchmarks/first_command.py run DATA OUT --on cpu --rows commands digits --seeds 1

`prepare` writes what the rows read. Commands and digits need no data set; the others are made from those in SETS, each
where SETS has it: multi30k/tok (train, val and test_2016_flickr, each .en and .de), cmudict/cmudict.txt, tatoeba-en-fr
(train, dev and test .tsv), tinyshakespeare/input.txt and sst2 (train and dev .tsv).

`run` trains each row with each seed by one command, `regard train --data ... --minutes ...`, evaluates it, and prints
a Markdown table: the figure with its interval, what the mean of the seeds should reach, the updates, the wall-clock
time of the training command and the most memory that it took. `--together` trains so many at once. Rows that start from
a trained encoder need `--encoder`, an imported all-MiniLM-L6-v2. A run that is in OUT already is only evaluated.
`--dry-run` prints the commands.
"""

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REGARD = (sys.executable, "-m", "regard")
WINDOW = "the run's window"
COLUMNS = ("row", "figures", "mean", "wanted", "updates", "time", "memory")
PARTS = {"train": "train", "val": "valid", "test_2016_flickr": "test"}


@dataclass(frozen=True, kw_only=True)
class Row:
    """Data, the minutes that its training may take on each kind of machine, and the figure that is wanted there."""

    train: Sequence[str]
    evaluate: Sequence[str] = ()
    figure: str
    scale: float = 100.0
    unit: str = " %"
    wrong: bool = False
    """Whether the figure is what is left of `scale`: words that are wrong rather than right."""
    lower: bool = False
    minutes: dict[str, float]
    wanted: dict[str, float]
    encoder: bool = False


ROWS = {
    "commands": Row(
        train=("--data", "commands/train.tsv", "--valid", "commands/valid.tsv", "--test", "commands/test.tsv"),
        figure="exact_match",
        minutes={"cpu": 10, "gpu": 3},
        wanted={"cpu": 98},
    ),
    "captions": Row(
        train=(
            *("--data", "captions/train.en", "--data", "captions/train.de"),
            *("--valid", "captions/valid.en", "--valid", "captions/valid.de"),
        ),
        evaluate=("--data", "captions/test.en", "--data", "captions/test.de", "--tokenize", "none"),
        figure="bleu",
        scale=1.0,
        unit=" BLEU",
        minutes={"cpu": 20, "gpu": 5},
        wanted={"cpu": 33, "gpu": 42.5},
    ),
    "sentences": Row(
        train=("--data", "sentences/train.tsv", "--valid", "sentences/dev.tsv", "--test", "sentences/test.tsv"),
        figure="bleu",
        scale=1.0,
        unit=" BLEU",
        minutes={"cpu": 10, "gpu": 5},
        wanted={"gpu": 50.5},
    ),
    "sounds": Row(
        train=("--data", "sounds/train.tsv", "--valid", "sounds/valid.tsv"),
        evaluate=("--data", "sounds/test.tsv", "--alternatives"),
        figure="exact_match",
        unit=" % wrong",
        wrong=True,
        lower=True,
        minutes={"cpu": 10, "gpu": 5},
        wanted={"gpu": 22.0},
    ),
    "characters": Row(
        train=("--data", "characters/train.txt", "--valid", "characters/valid.txt"),
        evaluate=("--stride", WINDOW),  # windows that do not overlap
        figure="nll",
        scale=1.0,
        unit=" nats",
        lower=True,
        minutes={"cpu": 5, "gpu": 1},
        wanted={"cpu": 1.60, "gpu": 1.45},
    ),
    "films-encoder": Row(
        train=("--data", "films/train.tsv", "--valid", "films/dev.tsv"),
        figure="accuracy",
        minutes={"cpu": 24, "gpu": 3},
        wanted={"gpu": 89.5},
        encoder=True,
    ),
    "films": Row(
        train=("--data", "films/train.tsv", "--valid", "films/dev.tsv"),
        figure="accuracy",
        minutes={"cpu": 10, "gpu": 3},
        wanted={"cpu": 80.0, "gpu": 80.0},
    ),
    "digits": Row(
        train=("--data", "digits"),
        evaluate=("--data", "digits/test"),
        figure="accuracy",
        minutes={"cpu": 5, "gpu": 2},
        wanted={"cpu": 97.0},
    ),
}


def prepare(data: Path, sets: Path | None) -> None:
    """Write the files that the rows read, and say which cannot be made."""
    data.mkdir(parents=True, exist_ok=True)
    subprocess.run([*REGARD, "data", "commands", str(data / "commands"), "--no-mirrored"], check=True)
    _digits(data / "digits")
    sources = {} if sets is None else dict(_made_of(sets, data))
    for name in ROWS:
        folder = name.removesuffix("-encoder")
        if not (data / folder).exists():
            print(f"{name}: not made; {sources.get(folder, 'give --sets')}")


def _digits(folder: Path) -> None:
    """scikit-learn's digits as folders of images; the test part, the last fifth, is mostly by other writers."""
    from PIL import Image
    from sklearn.datasets import load_digits

    found: Any = load_digits()
    first = len(found.target) - len(found.target) // 5
    for number, (pixels, label) in enumerate(zip(found.images, found.target, strict=True)):
        path = folder / ("train" if number < first else "test") / str(label) / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((pixels * 15.9375).astype("uint8")).save(path)


def _made_of(sets: Path, data: Path) -> Iterator[tuple[str, str]]:
    """Copy or split each data set that is there; of the others, what is missing."""
    pairs = {
        f"multi30k/tok/{old}.{side}": f"captions/{new}.{side}" for old, new in PARTS.items() for side in ("en", "de")
    }
    tables = {f"tatoeba-en-fr/{part}.tsv": f"sentences/{part}.tsv" for part in ("train", "dev", "test")}
    films = {f"sst2/{part}.tsv": f"films/{part}.tsv" for part in ("train", "dev")}
    for copies in (pairs, tables, films):
        missing = [source for source in copies if not (sets / source).exists()]
        for source, target in copies.items() if not missing else ():
            (data / target).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(sets / source, data / target)
        yield next(iter(copies.values())).split("/")[0], f"no {', '.join(missing)} in {sets}"
    dictionary = sets / "cmudict/cmudict.txt"
    if dictionary.exists():
        script = str(Path(__file__).with_name("cmudict.py"))
        subprocess.run([sys.executable, script, str(dictionary), str(data / "sounds")], check=True)
    yield "sounds", f"no {dictionary}"
    plays = sets / "tinyshakespeare/input.txt"
    if plays.exists():
        text = plays.read_text(encoding="utf-8")
        (data / "characters").mkdir(exist_ok=True)
        for part, piece in (("train", text[: len(text) * 9 // 10]), ("valid", text[len(text) * 9 // 10 :])):
            (data / "characters" / f"{part}.txt").write_text(piece, encoding="utf-8")
    yield "characters", f"no {plays}"


def commands_of(name: str, seed: int, options: argparse.Namespace) -> tuple[list[str], list[str]]:
    """What trains a row, and what evaluates it."""
    row, run = ROWS[name], str(options.out / f"{name}-{seed}")

    def there(arguments: Sequence[str]) -> list[str]:
        return [str(options.data / one) if "/" in one or one == "digits" else one for one in arguments]

    train = ["train", *there(row.train), "--minutes", f"{options.minutes or row.minutes[options.on]:g}"]
    train += ["--from", str(options.encoder)] * row.encoder + ["--set", f"train.seed={seed}", "--out", run]
    train += ["--set", "train.device=cpu"] * (options.on == "cpu")
    evaluate = ["evaluate", run, *there(row.evaluate), "--json"]
    return train, [*evaluate, *(["--device", "cpu"] * (options.on == "cpu"))]


def measured(name: str, seed: int, options: argparse.Namespace) -> dict[str, Any] | str:
    """One training and what its run is worth, or why there is none."""
    train, evaluate = commands_of(name, seed, options)
    run = options.out / f"{name}-{seed}"
    notes = options.out / f"{name}-{seed}.json"
    if not (run / "model.safetensors").exists():
        began = time.monotonic()
        with open(options.out / f"{name}-{seed}.log", "wb") as log:
            process = subprocess.Popen([*REGARD, *train], stdout=log, stderr=subprocess.STDOUT)
            _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            return f"regard train ended with {process.returncode}: see {log.name}"
        took = {"seconds": time.monotonic() - began, "gibibytes": usage.ru_maxrss / 2**20}
        notes.write_text(json.dumps(took), encoding="utf-8")
    config = json.loads((run / "config.json").read_text(encoding="utf-8"))
    evaluate = [str(config["model"]["max_len"]) if one == WINDOW else one for one in evaluate]
    scored = subprocess.run([*REGARD, *evaluate], capture_output=True, text=True)
    if scored.returncode:
        return f"regard evaluate: {scored.stderr.strip().splitlines()[-1:]}"
    scores, row = json.loads(scored.stdout), ROWS[name]

    def shown(value: float) -> float:
        return row.scale * (1 - value) if row.wrong else row.scale * value

    took = json.loads(notes.read_text(encoding="utf-8")) if notes.exists() else {}
    interval = sorted(shown(value) for value in scores.get(f"{row.figure}_interval") or ())
    return {"figure": shown(scores[row.figure]), "interval": interval, "steps": config["train"]["steps"], **took}


def table(name: str, found: dict[int, dict[str, Any] | str], options: argparse.Namespace) -> str:
    """The row of the page: each seed's figure, their mean, and whether that is what is wanted."""
    row, digits = ROWS[name], 3 if ROWS[name].figure == "nll" else 2
    good = {seed: one for seed, one in found.items() if isinstance(one, dict)}
    said = [f"seed {seed}: {one}" for seed, one in found.items() if isinstance(one, str)]
    for seed, one in good.items():
        interval = ", ".join(f"{value:.{digits}f}" for value in one["interval"])
        said.append(f"{one['figure']:.{digits}f}{f' [{interval}]' * bool(interval)} (seed {seed})")
    mean = sum(one["figure"] for one in good.values()) / len(good) if good else None
    wanted = row.wanted.get(options.on)
    if wanted is None or mean is None:
        verdict = ""
    else:
        verdict = "reached" if (mean <= wanted if row.lower else mean >= wanted) else "not reached"
        verdict = f"{'at most' if row.lower else 'at least'} {wanted:g}{row.unit}: {verdict}"
    steps = ", ".join(f"{one['steps']:,}" for one in good.values())
    took = ", ".join(f"{one['seconds']:.0f} s" for one in good.values() if "seconds" in one)
    memory = max((one["gibibytes"] for one in good.values() if "gibibytes" in one), default=None)
    minutes = options.minutes or row.minutes[options.on]
    cells = (
        f"{name}, {minutes:g} min",
        "; ".join(said),
        "" if mean is None else f"{mean:.{digits}f}{row.unit}",
        *(verdict, steps, took, "" if memory is None else f"{memory:.1f} GiB"),
    )
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    make = verbs.add_parser("prepare", help="write what the rows read")
    make.add_argument("data", type=Path)
    make.add_argument("--sets", type=Path, help="a folder of public data sets")
    go = verbs.add_parser("run", help="train and evaluate")
    go.add_argument("data", type=Path)
    go.add_argument("out", type=Path)
    go.add_argument("--on", choices=("cpu", "gpu"), required=True)
    go.add_argument("--rows", nargs="+", choices=tuple(ROWS), help="by default those with a figure to reach there")
    go.add_argument("--seeds", nargs="+", type=int, default=[1, 2])
    go.add_argument("--together", type=int, default=1, help="how many train at once")
    go.add_argument("--minutes", type=float, help="instead of each row's own")
    go.add_argument("--encoder", type=Path, help="an imported all-MiniLM-L6-v2")
    go.add_argument("--dry-run", action="store_true", help="print the commands")
    options = parser.parse_args()
    if options.verb == "prepare":
        prepare(options.data, options.sets)
        return
    names = options.rows or [name for name, row in ROWS.items() if options.on in row.wanted]
    if options.encoder is None and any(ROWS[name].encoder for name in names):
        print("rows that start from an encoder are left out: give --encoder", file=sys.stderr)
        names = [name for name in names if not ROWS[name].encoder]
    if options.dry_run:
        for name in names:
            for seed in options.seeds:
                for command in commands_of(name, seed, options):
                    print(shlex.join(["regard", *command]))
        return
    options.out.mkdir(parents=True, exist_ok=True)
    jobs = [(name, seed) for name in names for seed in options.seeds]
    with ThreadPoolExecutor(options.together) as pool:
        futures = {job: pool.submit(measured, *job, options) for job in jobs}
        print(f"on {options.on}, {options.together} at once\n")
        print(
            "| row | figures | mean | wanted | updates | time | memory |\n| --- | --- | --- | --- | --- | --- | --- |"
        )
        for name in names:
            print(table(name, {seed: futures[name, seed].result() for seed in options.seeds}, options), flush=True)


if __name__ == "__main__":
    main()
