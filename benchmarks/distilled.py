"""A teacher of 6+6 layers and students of 6+2 that learn what it writes, by one recipe on one GPU: by hand.

    python benchmarks/distilled.py DATA OUT
    python benchmarks/deep_shallow.py OUT/teacher OUT/distilled --data test_2016_flickr.en test_2016_flickr.de

DATA has train.en and train.de of Multi30k. Where it has no val and test_2016_flickr files as well, the last 2,000 pairs
are held out, 1,000 for each. The teacher is the preset `multi30k` with 6+6 layers and norms first; the students are
`multi30k-deep-shallow`, trained at the same time: `distilled` on the teacher's translations, `mixed` on these and
the references, `plain` on the references alone; `begun` and `begun-mixed` are the first two, but begin as some of the
teacher's layers instead of at random, with a lower rate. With `-1` after a name its decoder has one layer. All
students have as many updates. What comes out: a run for each, its log, and their scores on the test set, by beam and
greedily, in OUT/scores.json.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

LANGUAGES = ("en", "de")
NAMES = {"train": "train", "valid": "val", "test": "test_2016_flickr"}
HELD_OUT = 1000
STUDENTS = ("distilled", "mixed", "plain", "begun", "begun-mixed")
BEGUN = ("train.learning_rate=1e-3", "train.warmup=200")
"""How those learn that begin as their teacher."""
STUDENT = "multi30k-deep-shallow"
TEACHER = ("model.encoder_layers=6", "model.decoder_layers=6", "model.norm_first=true")


def held_out(data: Path, out: Path) -> dict[str, list[Path]]:
    """The files of each part, made from the training pairs where there are only these."""
    parts = {part: [data / f"{name}.{language}" for language in LANGUAGES] for part, name in NAMES.items()}
    if all(file.exists() for files in parts.values() for file in files):
        return parts
    out.mkdir(parents=True, exist_ok=True)
    for file in parts["train"]:
        lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
        cut = {"train": (0, -2 * HELD_OUT), "valid": (-2 * HELD_OUT, -HELD_OUT), "test": (-HELD_OUT, None)}
        for part, (first, last) in cut.items():
            text = "".join(lines[first:last])
            (out / f"{part}{file.suffix}").write_text(text, encoding="utf-8", newline="\n")
    return {part: [out / f"{part}.{language}" for language in LANGUAGES] for part in NAMES}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=4000, help="updates of the teacher")
    parser.add_argument("--student-steps", type=int, default=4000, help="updates of each student")
    parser.add_argument(
        "--students", nargs="+", default=["mixed", "begun-mixed"], help=f"{', '.join(STUDENTS)}; or with -1 after it"
    )
    parser.add_argument("--set", action="append", default=[], help="a setting of all of them")
    parser.add_argument("--limit", type=int, help="score on so many test pairs")
    options = parser.parse_args()
    files = held_out(options.data, options.out / "data")
    common = ["--set=train.validate_every=1000", "--set=train.save_every=100000"]
    common += [f"--set={setting}" for setting in options.set]
    given = [f"--{'data' if part == 'train' else part}={file}" for part, several in files.items() for file in several]
    teacher, began = options.out / "teacher", time.monotonic()

    def regard(name: str, *arguments: str) -> subprocess.Popen[bytes]:
        log = (options.out / f"{name}.log").open("wb")
        return subprocess.Popen([sys.executable, "-m", "regard", *arguments], stdout=log, stderr=subprocess.STDOUT)

    def finished(name: str, process: subprocess.Popen[bytes]) -> None:
        code = process.wait()
        tail = (options.out / f"{name}.log").read_text(encoding="utf-8").splitlines()[-12:]
        print(f"{name}: {time.monotonic() - began:.0f} s since the beginning", *tail, sep="\n  ", flush=True)
        if code:
            sys.exit(f"{name} failed")

    options.out.mkdir(parents=True, exist_ok=True)
    settings = [f"--set={setting}" for setting in (*TEACHER, f"train.steps={options.steps}")]
    finished("teacher", regard("teacher", "train", "--preset=multi30k", *settings, *given, *common, f"--out={teacher}"))
    ways = {
        "distilled": ["distill", str(teacher)],
        "mixed": ["distill", str(teacher), "--keep-references"],
        "plain": ["train", f"--set=tokenizer.taken_from={teacher}", *given],
    }
    for name in ("distilled", "mixed"):
        begun = [f"--set={setting}" for setting in BEGUN]
        ways[name.replace("distilled", "begun").replace("mixed", "begun-mixed")] = [
            *ways[name],
            "--from-teacher",
            *begun,
        ]
    under_way = {}
    for name in options.students:
        way, _, layers = name.rpartition("-") if name[-1].isdigit() else (name, "", "2")
        shape = [f"--preset={STUDENT}", f"--set=model.decoder_layers={layers}"]
        long = f"--set=train.steps={options.student_steps}"
        under_way[name] = regard(name, *ways[way], *shape, long, *common, f"--out={options.out / name}")
    for name, process in under_way.items():
        finished(name, process)
    scores = {name: measured(options.out / name, options.limit) for name in ("teacher", *options.students)}
    (options.out / "scores.json").write_text(json.dumps(scores, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(scores, indent=2), f"all in {time.monotonic() - began:.0f} s", sep="\n")


def measured(directory: Path, limit: int | None) -> dict[str, object]:
    """Test BLEU of the text, which is in lower case, by beam 5 and greedily."""
    import regard

    run = regard.load(directory)
    found = {f"beam {beam}": regard.evaluate(run, beam=beam, tokenize="none", limit=limit) for beam in (5, 1)}
    signature = found["beam 5"]["bleu_signature"]
    parameters = sum(weight.numel() for weight in run.model.parameters())
    return {"parameters": parameters, "signature": signature, **{name: one["bleu"] for name, one in found.items()}}


if __name__ == "__main__":
    main()
