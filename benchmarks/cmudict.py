"""Pairs of spelling and pronunciation from the CMU dictionary, for the preset `letters-to-sounds`.

    python benchmarks/cmudict.py cmudict.txt DIRECTORY
    regard train --preset letters-to-sounds --data DIRECTORY/train.tsv --valid DIRECTORY/valid.tsv --out runs/sounds
    regard evaluate runs/sounds --data DIRECTORY/test.tsv --alternatives

Of the words a tenth, chosen by a digest of their letters, is held out for the test and a hundredth for validation: all
pronunciations of a word fall on the same side. Stress is removed, so pronunciations that differ in it become one.
"""

import hashlib
import re
import sys
from pathlib import Path

LINE = re.compile(r"(?P<word>[^\s(]+)(?:\(\d+\))?\s+(?:\d+\s+)?(?P<sounds>[A-Z].*)")


def main(dictionary: str, directory: str) -> None:
    said: dict[str, list[str]] = {}
    for line in Path(dictionary).read_text(encoding="utf-8").splitlines():
        found = LINE.fullmatch(line.strip())
        if found is None or not found["word"][0].isalpha():
            continue
        sounds = re.sub(r"\d", "", found["sounds"])
        every = said.setdefault(found["word"].lower(), [])
        if sounds not in every:
            every.append(sounds)
    parts: dict[str, list[str]] = {"train": [], "valid": [], "test": []}
    for word, every in said.items():
        part = int(hashlib.sha256(word.encode()).hexdigest(), 16) % 100
        side = "test" if part < 10 else "valid" if part == 10 else "train"
        parts[side] += [f"{word}\t{sounds}\n" for sounds in every]
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    for side, lines in parts.items():
        (folder / f"{side}.tsv").write_text("".join(lines), encoding="utf-8")
        words = len({line.split("\t")[0] for line in lines})
        print(f"{side}: {words:,} words, {len(lines):,} pronunciations")


if __name__ == "__main__":
    main(*sys.argv[1:])
