"""Sounds with their texts: tables of sound files and texts, folders of sounds with texts beside them; and batches."""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int

from regard.data.audio.log_mel import MelConfig, log_mel
from regard.data.audio.sound import SUFFIXES, Sound, SoundSamples, clock, open_sound, read_sound
from regard.data.batches import epoch_order, evaluation_order, padded
from regard.data.file_tables import Part, file_rows, open_part, texts_beside
from regard.data.formats import Columns, Header
from regard.data.images.augmentation import ImageRandom
from regard.data.pair_store import Rows
from regard.data.prepared_cache import cached, opened, stored, write_meta
from regard.data.readers import content_digest
from regard.errors import ConfigError, DataError
from regard.nn.batch import Points, TranscribedSounds

VERSION = 1
CHUNK = 256  # sounds read at a time
Frames = Float[np.ndarray, "_ M"]


@runtime_checkable
class SoundSource(Protocol):
    """Sounds, and what is said in each."""

    @property
    def names(self) -> Sequence[str]: ...

    @property
    def texts(self) -> Sequence[str]: ...

    @property
    def notes(self) -> Sequence[str]:
        """What is to be said of them once."""
        ...

    def samples(self, place: int, rate: int) -> Float[np.ndarray, " N"]:
        """One of the sounds, at `rate` samples per second."""
        ...

    def select(self, rows: Sequence[int]) -> "SoundSource": ...

    def digest(self) -> str: ...


@dataclass(frozen=True, slots=True)
class SoundFiles:
    """Sound files with their texts. `notes` are to be said once; no more than `longest` seconds of one are read."""

    paths: tuple[Path, ...]
    texts: tuple[str, ...]
    notes: tuple[str, ...] = ()
    longest: float = 600.0

    def __post_init__(self) -> None:
        if len(self.paths) != len(self.texts):
            raise DataError(f"{len(self.paths)} sounds and {len(self.texts)} texts")

    @property
    def names(self) -> list[str]:
        return [str(path) for path in self.paths]

    def samples(self, place: int, rate: int) -> Float[np.ndarray, " N"]:
        return read_sound(self.paths[place], rate, longest=self.longest)

    def select(self, rows: Sequence[int]) -> "SoundFiles":
        return replace(self, paths=tuple(self.paths[row] for row in rows), texts=tuple(self.texts[row] for row in rows))

    def digest(self) -> str:
        return content_digest(self.paths, ["sounds"])


def open_transcribed(
    name: str | Path,
    part: Part | None = None,
    *,
    keys: tuple[str | int, str | int] = ("sound", "text"),
    header: Header = "auto",
) -> SoundFiles | None:
    """The sounds and texts of a table or a folder; None where it has no such part.

    A table (`.tsv`, `.csv`, `.jsonl`, `.parquet`) has a sound file, named from the table's own folder, and its text in
    each row. A folder has such a table for each part, `train.tsv`, `valid.tsv` and `test.tsv`; or else sounds, each
    with a `.txt` of its name beside it, perhaps in folders of these names.
    """
    return open_part(
        name,
        part,
        table=lambda path: _table(path, keys, header),
        folder=_beside,
        whole=lambda path, tables: _beside(path),
    )


def sound_paths(path: Path) -> list[Path]:
    """The sound files of a folder, or the file itself."""
    if not path.exists():
        raise DataError(f"no such file or folder: {path}")
    if not path.is_dir():
        return [path]
    found = sorted(file for file in path.rglob("*") if file.suffix.lower() in SUFFIXES)
    if not found:
        raise DataError(f"{path} has no sound files; known: {', '.join(SUFFIXES)}")
    return found


def _table(path: Path, keys: tuple[str | int, str | int], header: Header) -> SoundFiles:
    found, notes = file_rows(path, Columns(keys, ("data.sound", "data.text"), header), "a sound", "a text")
    paths = tuple(path.parent / name for name, _ in found)
    return SoundFiles(paths, tuple(" ".join(text.split()) for _, text in found), notes)


def _beside(path: Path) -> SoundFiles:
    found, notes = texts_beside(path, SUFFIXES, "a sound", "a text", "train.tsv and its like")
    texts = tuple(" ".join(word for line in lines for word in line.split()) for lines in found.values())
    return SoundFiles(tuple(found), texts, notes)


def sound_frames(samples: Float[np.ndarray, " N"], config: MelConfig) -> Frames:
    """The log-mel frames of a sound, each band with mean 0 and deviation 1 over it: how loud a recording is, and what
    its microphone does to each band, are taken out."""
    found = log_mel(torch.from_numpy(samples), config)
    deviation, mean = torch.std_mean(found, dim=0, keepdim=True, correction=0)
    return ((found - mean) / (deviation + 1e-2)).numpy()


@dataclass(frozen=True)
class SoundStore:
    """The frames of sounds, one after another; those of sound `i` lie between `offsets[i]` and `offsets[i + 1]`."""

    frames: np.ndarray
    offsets: Int[np.ndarray, " bounds"]

    @property
    def lengths(self) -> Int[np.ndarray, " N"]:
        return np.diff(self.offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, place: int) -> Frames:
        return self.frames[self.offsets[place] : self.offsets[place + 1]].astype(np.float32)

    @classmethod
    def open(cls, folder: Path) -> "SoundStore":
        with opened(folder, "sounds", VERSION) as meta:
            offsets = np.fromfile(folder / "offsets", dtype=np.int64)
            values = stored(folder / "frames", np.float16, int(offsets[-1]) * meta["bands"])
            return cls(values.reshape(-1, meta["bands"]), offsets)


def prepare_sounds(
    sounds: SoundSource,
    config: MelConfig,
    cache: Path,
    *,
    progress: Callable[[int], None] | None = None,
    say: Callable[[str], None] | None = None,
) -> SoundStore:
    """The sounds as frames, from a folder under `cache`: reused when nothing changed, else written now."""

    def write(folder: Path) -> None:
        offsets, places = [0], iter(range(len(sounds.names)))

        def frames(place: int) -> Frames | DataError:
            try:
                return sound_frames(sounds.samples(place, config.rate), config)
            except DataError as error:  # the rest is read too, to name all that is wrong
                return error

        broken: list[str] = []
        with (folder / "frames").open("wb") as file, _pool() as pool:
            while part := list(islice(places, CHUNK)):
                for found in pool.map(frames, part):
                    if isinstance(found, DataError):
                        broken.append(str(found))
                        continue
                    file.write(found.astype(np.float16).tobytes())
                    offsets.append(offsets[-1] + len(found))
                if progress is not None:
                    progress(part[-1] + 1)
        if broken:
            raise DataError("; ".join(broken[:3]) + (f"; and {len(broken) - 3} more" if len(broken) > 3 else ""))
        np.array(offsets, dtype=np.int64).tofile(folder / "offsets")
        write_meta(folder, VERSION, bands=config.bands)

    key = ["sounds", VERSION, sounds.digest(), json.dumps(asdict(config))]
    return cached(cache, key, SoundStore.open, write, say)


@contextmanager
def _pool() -> Iterator[ThreadPoolExecutor]:
    """A thread for each processor that this process may use; torch's own would only stand in their way meanwhile."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(cores, initializer=lambda: torch.set_num_threads(1)) as pool:
            yield pool
    finally:
        torch.set_num_threads(before)


def sounds_of(given: SoundSource, places: Iterable[int], rate: int) -> Iterator[Sound]:
    """The sounds at these places, opened: files are read when they are needed, however long they are."""
    names = given.names
    for place in places:
        if isinstance(given, SoundFiles):
            yield open_sound(given.paths[place])
        else:
            yield SoundSamples(given.samples(place, rate), rate, names[place])


def check_lengths(sounds: SoundSource, longest: float) -> list[int]:
    """The places of sounds that are no longer than `longest` seconds, by their headers alone."""
    if not isinstance(sounds, SoundFiles):
        return list(range(len(sounds.names)))
    kept = []
    for place, path in enumerate(sounds.paths):
        sound = open_sound(path)
        if sound.frames / sound.rate <= longest:
            kept.append(place)
    return kept


@dataclass(frozen=True, kw_only=True, slots=True)
class SpecAugment:
    """What is blotted out of a sound in training (Park et al. 2019): `band_masks` stretches of up to `band_width` bands
    and `time_masks` of up to `time_share` of the frames, each with the mean; `warp` moves all bands up or down by up to
    this share, as a longer or shorter vocal tract would, and `stretch` makes the sound longer or shorter by it."""

    band_masks: int = 0
    band_width: int = 8
    time_masks: int = 0
    time_share: float = 0.1
    warp: float = 0.0
    stretch: float = 0.0

    def __post_init__(self) -> None:
        for name in ("band_masks", "band_width", "time_masks"):
            if getattr(self, name) < 0:
                raise ConfigError(f"data.{name}={getattr(self, name)} must not be negative")
        for name in ("time_share", "warp", "stretch"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ConfigError(f"data.{name}={getattr(self, name)} must be at least 0 and below 1")

    @property
    def changes(self) -> bool:
        """Whether a sound is changed at all."""
        return bool(self.band_masks or self.time_masks or self.warp or self.stretch)

    def frames_at_most(self, frames: Int[np.ndarray, " N"]) -> Int[np.ndarray, " N"]:
        """How many frames sounds of so many may have after they were stretched."""
        return np.ceil(frames * (1 + self.stretch)).astype(frames.dtype)

    def __call__(self, frames: Sequence[Frames], random: ImageRandom) -> list[Frames]:
        """Each of the sounds changed by its own random numbers."""
        found = [one.copy() for one in frames]
        if self.warp or self.stretch:
            warps, stretches = random.around("warp", self.warp), random.around("stretch", self.stretch)
            found = [_resized(*one) for one in zip(found, warps, stretches, strict=True)]
        for number in range(self.band_masks):
            widths, starts = random(f"band width {number}"), random(f"band start {number}")
            for one, width, start in zip(found, widths, starts, strict=True):
                _blot(one.T, int(width * (min(self.band_width, one.shape[1]) + 1)), start)
        for number in range(self.time_masks):
            widths, starts = random(f"time width {number}"), random(f"time start {number}")
            for one, width, start in zip(found, widths, starts, strict=True):
                _blot(one, int(width * (self.time_share * len(one) + 1)), start)
        return found


def _blot(rows: np.ndarray, width: int, start: float) -> None:
    begin = int(start * (len(rows) - width + 1))
    rows[begin : begin + width] = 0.0


def _resized(frames: Frames, warp: float, stretch: float) -> Frames:
    """Frames at other times and bands, between the nearest two of each."""
    T, M = frames.shape
    if stretch:
        at = np.linspace(0, T - 1, max(1, round(T * (1 + stretch))))
        low = np.minimum(at.astype(np.int64), max(0, T - 2))
        part = (at - low)[:, None].astype(np.float32)
        frames = frames[low] * (1 - part) + frames[np.minimum(low + 1, T - 1)] * part
    if warp:
        at = np.minimum(np.arange(M) * (1 + warp), M - 1)
        low = np.minimum(at.astype(np.int64), M - 2)
        part = (at - low).astype(np.float32)
        frames = frames[:, low] * (1 - part) + frames[:, low + 1] * part
    return frames


class SoundLayout:
    """Batches of sounds with their texts, those of like length together, changed as `augment` says."""

    def __init__(
        self,
        store: SoundStore,
        texts: Rows,
        of: Int[np.ndarray, " N"],
        augment: SpecAugment,
        *,
        budget: int,
        seed: int,
        reduction: int,
    ) -> None:
        self.store, self.texts, self.of, self.augment = store, texts, of, augment
        self.budget, self.seed, self.reduction = budget, seed, reduction
        self.positions = positions_of(augment.frames_at_most(store.lengths[of]), reduction)

    def order(self, seed: int, epoch: int) -> list[Int[np.ndarray, "rows 2"]]:
        """Of each batch the texts and, beside each, the epoch, by which its sound will be changed."""
        found = epoch_order(self.positions, self.texts.lengths, budget=self.budget, seed=seed, epoch=epoch)
        return [np.stack((chosen, np.full_like(chosen, epoch)), axis=1) for chosen in found]

    def batch(self, rows: Int[np.ndarray, "rows 2"]) -> TranscribedSounds:
        chosen, epoch = rows[:, 0], int(rows[0, 1])
        frames = [self.store[place] for place in self.of[chosen].tolist()]
        changed = self.augment(frames, ImageRandom(self.seed, epoch, chosen))
        return _batch(changed, self.texts, chosen, self.reduction)


def sound_batches(
    store: SoundStore, texts: Rows, of: Int[np.ndarray, " N"], *, budget: int, reduction: int
) -> Iterator[TranscribedSounds]:
    """Every sound once as it is, shortest first."""
    positions = positions_of(store.lengths[of], reduction)
    least = int((positions + texts.lengths).max())
    for chosen in evaluation_order(positions, texts.lengths, budget=max(budget, least)):
        yield _batch([store[place] for place in of[chosen].tolist()], texts, chosen, reduction)


def positions_of(frames: Int[np.ndarray, " N"], reduction: int) -> Int[np.ndarray, " N"]:
    return (-(-frames // reduction)).astype(np.int32)


def _batch(frames: Sequence[Frames], texts: Rows, rows: np.ndarray, reduction: int) -> TranscribedSounds:
    count = int(texts.lengths[rows].sum()) - len(rows)
    return TranscribedSounds(Points.of(frames), padded(texts, rows), count, reduction)


def too_long_note(left: int, longest: float, done: str, what: str = "sounds") -> str:
    return f"{left:,} {what} of more than data.max_seconds={longest:g} ({clock(longest)}) are {done}"
