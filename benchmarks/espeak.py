"""Sentences of a text, spoken by Debian's espeak-ng in several voices, as a folder that `regard train` reads.

    apt-get install libespeak-ng1
    python benchmarks/espeak.py sentences.txt spoken --train 20000
    regard train --preset speech-sentences --data spoken --out runs/spoken
    regard evaluate runs/spoken --data spoken/unheard.tsv

The text is yours, one sentence per line. Of its words the most frequent are taken, and of its sentences those that have
no others; a sentence that is held out is spoken in neither training nor validation. `test` has held-out sentences in
voices that were heard, `unheard` in one that was not. espeak-ng is GPL: its library is called, nothing of it is here.
"""

import argparse
import ctypes
import os
import re
import wave
import zlib
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TextIO

import numpy as np

VOICES = (
    *("en-us", "en-us+m1", "en-us+m3", "en-us+m5", "en-us+f1", "en-us+f3", "en-us+f5"),
    *("en+m2", "en+m4", "en+m6", "en+f2", "en-gb-scotland", "en-gb-x-rp+m8", "en-us+klatt2"),
    *("en-us+f4", "en-us+Alex", "en-us+Andy", "en-us+Denis", "en-us+Gene", "en-us+Jacky", "en-us+Lee", "en-us+Michael"),
    *("en-us+Mike", "en-us+adam", "en-us+announcer", "en-us+belinda", "en-us+benjamin", "en-us+david", "en-us+edward"),
    *("en-us+john", "en-us+linda", "en-us+max", "en-us+paul", "en-us+quincy", "en-us+rob", "en-us+robert"),
    *("en-us+steph", "en-us+travis", "en-us+victor", "en-us+zac"),
)
UNHEARD = "en-us+m7"
RATE = 22050
# Of espeak-ng/speak_lib.h.
SYNCHRONOUS, CHARACTERS, UTF8, SPEED, PITCH = 2, 1, 1, 1, 3
CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)


class Speaker:
    """espeak-ng in this process: starting its program for every sentence takes longer than speaking does."""

    def __init__(self, library: str, data: str | None) -> None:
        self._library = ctypes.CDLL(library)
        rate = self._library.espeak_Initialize(SYNCHRONOUS, 0, None if data is None else data.encode(), 0)
        if rate != RATE:
            raise SystemExit(f"{library} gave {rate} instead of its rate of {RATE}: is its data where --data says?")
        self._pieces: list[np.ndarray] = []
        self._callback = CALLBACK(self._take)
        self._library.espeak_SetSynthCallback(self._callback)

    def say(self, text: str, voice: str, pitch: int, speed: int) -> np.ndarray:
        if self._library.espeak_SetVoiceByName(voice.encode()):
            raise SystemExit(f"espeak-ng has no voice {voice}")
        self._library.espeak_SetParameter(PITCH, pitch, 0)
        self._library.espeak_SetParameter(SPEED, speed, 0)
        self._pieces, said = [], text.encode() + b"\0"
        self._library.espeak_Synth(said, ctypes.c_size_t(len(said)), 0, CHARACTERS, 0, UTF8, None, None)
        return np.concatenate(self._pieces).astype(np.float32)

    def _take(self, samples: object, count: int, events: object) -> int:
        if samples and count:
            self._pieces.append(np.ctypeslib.as_array(samples, (count,)).copy())  # pyright: ignore[reportArgumentType]
        return 0


speaker: Speaker | None = None


def begin(library: str, data: str | None) -> None:
    """What every worker does first."""
    global speaker
    speaker = Speaker(library, data)


def sentences(path: Path, words: int, fewest: int, most: int) -> list[str]:
    """The sentences of the text that have no words but its most frequent ones, each once, in an order of their own."""
    found = {
        " ".join(re.findall(r"[a-z']+", line.lower())): None for line in path.read_text(encoding="utf-8").splitlines()
    }
    counts = Counter(word for line in found for word in line.split())
    known = {word for word, _ in counts.most_common(words)}
    kept = [line for line in found if fewest <= len(line.split()) <= most and known.issuperset(line.split())]
    return sorted(kept, key=lambda line: zlib.crc32(line.encode()))


def plan(lines: list[str], args: argparse.Namespace) -> Iterator[tuple[str, str, str, int]]:
    """The part, the text, the voice and the number of every sound."""
    held = args.valid + args.test
    if len(lines) < 2 * held:
        raise SystemExit(f"{len(lines):,} sentences are too few to hold out {held:,}: give a longer text")
    parts = {"valid": lines[: args.valid], "test": lines[args.valid : held], "unheard": lines[args.valid : held]}
    for part, own in parts.items():
        for number, text in enumerate(own):
            yield part, text, UNHEARD if part == "unheard" else VOICES[number % len(VOICES)], number
    rest = lines[held:]
    for number in range(args.train):
        yield "train", rest[number % len(rest)], VOICES[(number + number // len(rest)) % len(VOICES)], number


def spoken(job: tuple[str, str, str, int, str]) -> tuple[str, str, str]:
    """One sentence as a WAV at the rate of espeak-ng, 22,050 Hz; pitch and speed differ from sentence to sentence."""
    assert speaker is not None
    folder, part, text, number, voice = job
    bits = zlib.crc32(f"{part} {number}".encode())
    samples = speaker.say(text, voice, 35 + bits % 31, 145 + bits // 31 % 51)
    random = np.random.default_rng(bits)
    loud = float(np.sqrt((samples**2).mean())) * 10 ** (-random.uniform(20, 40) / 20)
    noisy = samples + loud * random.standard_normal(len(samples), dtype=np.float32)
    name = f"{part}/{number:06d}.wav"
    with wave.open(str(Path(folder) / name), "wb") as file:
        file.setparams((1, 2, RATE, len(noisy), "NONE", ""))
        file.writeframes(noisy.clip(-32768, 32767).astype("<i2").tobytes())
    return part, name, text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path, help="sentences, one per line")
    parser.add_argument("out", type=Path, help="the folder to write to")
    parser.add_argument("--train", type=int, default=20_000, help="training sounds")
    parser.add_argument("--valid", type=int, default=200)
    parser.add_argument("--test", type=int, default=400)
    parser.add_argument("--words", type=int, default=2500, help="how many of the text's words may occur")
    parser.add_argument("--fewest", type=int, default=3, help="words of a sentence")
    parser.add_argument("--most", type=int, default=10)
    parser.add_argument("--library", default="libespeak-ng.so.1")
    parser.add_argument("--data", help="the folder that holds espeak-ng-data, where it is not in its usual place")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    args = parser.parse_args()
    lines = sentences(args.text, args.words, args.fewest, args.most)
    jobs = []
    for part, text, voice, number in plan(lines, args):
        (args.out / part).mkdir(parents=True, exist_ok=True)
        jobs.append((str(args.out), part, text, number, voice))
    # Rows are written as sounds are, so that what is interrupted can be used as far as it has come.
    with ExitStack() as stack:
        given = args.library, args.data
        pool = stack.enter_context(ProcessPoolExecutor(args.workers, initializer=begin, initargs=given))
        tables: dict[str, TextIO] = {}
        for part, name, text in pool.map(spoken, jobs, chunksize=32):
            if part not in tables:
                opened = (args.out / f"{part}.tsv").open("w", encoding="utf-8", buffering=1)
                tables[part] = stack.enter_context(opened)
                tables[part].write("sound\ttext\n")
            tables[part].write(f"{name}\t{text}\n")
    used = {word for job in jobs for word in job[2].split()}
    print(
        f"{len(jobs):,} sounds of {len(lines):,} sentences over {len(used):,} words, {len(VOICES)} voices and {UNHEARD}"
    )


if __name__ == "__main__":
    main()
