"""`regard data`: corpora to train on."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args

import typer

if TYPE_CHECKING:
    from regard.data.synthetic.puzzles import Part

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


# What most commands are asked alike.
Directory = Annotated[Path, typer.Argument(help="The directory to write to.", metavar="DIRECTORY")]
Training = Annotated[int, typer.Option(help="How many to train on.", min=1)]
Validation = Annotated[int, typer.Option(help="How many to validate on.", min=1)]
Testing = Annotated[int, typer.Option(help="How many to test on.", min=1)]
Fewest = Annotated[int | None, typer.Option(help="The fewest, where sizes should differ.", min=3)]
Seed = Annotated[int, typer.Option(help="Other seeds give others to train on.", min=0)]
AnySeed = Annotated[int, typer.Option(help="Other seeds give others to train on.")]


@app.callback()
def data() -> None:
    """Make data to train on."""


@app.command("world")
def world(
    out: Directory,
    train: Training = 100_000,
    valid: Validation = 2000,
    test: Testing = 2000,
    seed: AnySeed = 1,
    grammar: Annotated[
        str, typer.Option(help="whole, or plain: fewer words, no pronouns, long sentences as common as short.")
    ] = "whole",
) -> None:
    """Write the bundled English-French corpus, with its gold.

    Writes train.tsv, valid.tsv and test.tsv, and beside each a .jsonl that holds each sentence's words, word
    alignment, pronouns with their antecedents, dependencies and parse. Held-out sentences never appear in training,
    whatever the seed.

    \b
    Examples:
      regard data world corpus
      regard data world corpus --train 5000
      regard train --preset tiny --data corpus/train.tsv --valid corpus/valid.tsv --out runs/mine
    """
    from regard.data.synthetic.world import Grammar, Split, sentences
    from regard.errors import ConfigError, nearest

    if grammar not in get_args(Grammar):
        raise ConfigError(f"unknown grammar '{grammar}'{nearest(grammar, get_args(Grammar))}")
    chosen = cast("Grammar", grammar)

    def rows(split: Split, count: int) -> Iterator[tuple[str, ...]]:
        for one in sentences(count, seed=seed, split=split, grammar=chosen):
            record = {"en": one.english, "fr": one.french, **asdict(one)}
            yield f"{one.english}\t{one.french}", json.dumps(record, ensure_ascii=False)

    write_parts(out, {"train": train, "valid": valid, "test": test}, (".tsv", ".jsonl"), rows)


@app.command("digits", short_help="Write scikit-learn's handwritten digits as arrays.")
def digits(
    out: Directory,
) -> None:
    """Write scikit-learn's handwritten digits as arrays: 1,797 images of 8 x 8 pixels.

    Writes digits.npz with train_images, train_labels, test_images and test_labels. The last fifth is the test part:
    scikit-learn has the digits in the order of their writers, so most of it is by hands that are not trained on.

    \b
    Examples:
      regard data digits digits
      regard train --preset vit-digits --data digits/digits.npz --out runs/digits
    """
    import numpy as np

    from regard.errors import ConfigError
    from regard.runs.files import whole_file, whole_or_nothing

    try:
        from sklearn.datasets import load_digits  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise ConfigError(
            "the digits come with scikit-learn, which is not installed: pip install scikit-learn"
        ) from None
    values, labels = load_digits(return_X_y=True)
    pictures, labels = np.rint(values.reshape(-1, 8, 8) * (255 / 16)).astype(np.uint8), labels.astype(np.uint8)
    cut = len(labels) - len(labels) // 5
    arrays = {"train_images": pictures[:cut], "train_labels": labels[:cut]}
    arrays |= {"test_images": pictures[cut:], "test_labels": labels[cut:]}
    with whole_or_nothing(out), whole_file(out / "digits.npz") as aside, aside.open("wb") as file:
        np.savez_compressed(file, **arrays)
    print(out / "digits.npz")


@app.command("commands", short_help="Write commands and the actions they mean.")
def commands(
    out: Directory,
    train: Training = 16_000,
    valid: Validation = 1000,
    test: Testing = 1000,
    seed: AnySeed = 1,
    mirrored: Annotated[bool, typer.Option(help="With `and back`: the same actions once more, the last first.")] = True,
) -> None:
    """Write commands and the actions they mean: a small grammar with nesting and repetition.

    Writes train.tsv, valid.tsv and test.tsv. Commands are distinct, and none is in two files; the longest has 50
    actions.

    \b
    Examples:
      regard data commands commands
      regard train --data commands/train.tsv --valid commands/valid.tsv --out runs/commands
    """
    from regard.data.synthetic.commands import Part
    from regard.data.synthetic.commands import commands as draw
    from regard.runs.files import whole_file, whole_or_nothing

    parts: dict[Part, int] = {"train": train, "valid": valid, "test": test}
    with whole_or_nothing(out), ExitStack() as stack:
        files = {
            part: stack.enter_context(
                stack.enter_context(whole_file(out / f"{part}.tsv")).open("w", encoding="utf-8", newline="\n")
            )
            for part in parts
        }
        for part, words, actions in draw(parts, seed=seed, mirrored=mirrored):
            files[part].write(f"{words}\t{actions}\n")
    for part in parts:
        print(out / f"{part}.tsv")


@app.command("telegrams", short_help="Write English sentences and their telegrams.")
def telegrams(
    out: Directory,
    train: Training = 40_000,
    valid: Validation = 1000,
    test: Testing = 1000,
    seed: AnySeed = 1,
) -> None:
    """Write English sentences and their telegrams, for models that copy.

    A telegram leaves out articles, adjectives, adverbs and punctuation. Half of the nouns never occur in training:
    made-up words stand in their place, a new one each time. In valid.tsv and test.tsv they do occur.

    \b
    Examples:
      regard data telegrams telegrams
      regard train --preset see-2017 --data telegrams/train.tsv --valid telegrams/valid.tsv --out runs/telegrams
    """
    from regard.data.synthetic.world import Split
    from regard.data.synthetic.world import telegrams as draw

    def rows(split: Split, count: int) -> Iterator[tuple[str, ...]]:
        return (("\t".join(pair),) for pair in draw(count, seed=seed, split=split))

    write_parts(out, {"train": train, "valid": valid, "test": test}, (".tsv",), rows)


@app.command("trees", short_help="Write trees of the grammar, or of bracketed files.")
def trees(
    out: Directory,
    files: Annotated[
        list[Path] | None,
        typer.Option("--from", help="Bracketed files to take the trees from instead; may be repeated.", metavar="FILE"),
    ] = None,
    train: Annotated[int | None, typer.Option(help="Training trees; of files, all that are left.", min=1)] = None,
    valid: Validation = 1000,
    test: Testing = 1000,
    seed: Seed = 1,
) -> None:
    """Write constituency trees in brackets, one per line: of the bundled grammar, or of a treebank's files.

    Writes train.trees, valid.trees and test.trees. Trees of files are cleaned: without traces, function tags and what
    stands above a sentence. They are split in the order that they have, training first, so that held-out ones are of
    other documents.

    \b
    Examples:
      regard data trees trees --train 20000
      regard data trees treebank --from combined.mrg --valid 200 --test 400
      regard train --preset parse-tiny --data trees/train.trees --valid trees/valid.trees --out runs/trees
    """
    from regard.data.synthetic.world import Split
    from regard.data.trees import Tree, cleaned, grammar_trees, read_trees
    from regard.errors import DataError

    parts: dict[Split, int] = {"train": train or 20_000, "valid": valid, "test": test}
    found: list[Tree] = []
    if files:
        read = [cleaned(tree) for file in files for tree in read_trees(file)]
        found = [tree for tree in read if tree is not None]
        left = len(found) - valid - test
        if left < 1 or (train or 1) > left:
            raise DataError(
                f"{len(found):,} trees are too few for {train or 1:,} of training, --valid={valid} and --test={test}"
            )
        parts["train"] = train or left
        if len(read) > len(found):
            print(f"{len(read) - len(found):,} trees without a word are left out", file=sys.stderr)

    def rows(split: Split, count: int) -> Iterator[tuple[str, ...]]:
        if not files:
            return ((str(tree),) for tree in grammar_trees(count, seed=seed, split=split))
        first = {"train": 0, "valid": len(found) - valid - test, "test": len(found) - test}[split]
        return ((str(tree),) for tree in found[first : first + count])

    write_parts(out, parts, (".trees",), rows)


@app.command("proteins", short_help="Write toy proteins with planted contacts.")
def proteins(
    out: Directory,
    train: Training = 10_000,
    valid: Validation = 500,
    test: Testing = 500,
    families: Annotated[int, typer.Option(help="Folds, each with contacts of its own.", min=1, max=1000)] = 8,
    seed: Seed = 1,
) -> None:
    """Write toy proteins with planted contacts, for masked pre-training over a fixed alphabet.

    Writes train.jsonl, valid.jsonl and test.jsonl with a protein in each row: its amino acids, 'text', and pairs of
    places in contact, 'contacts'. What stands at the two ends of a contact goes together, so that a model that is to
    predict one end learns to look at the other.

    \b
    Examples:
      regard data proteins proteins
      regard train --preset proteins-tiny --data proteins/train.jsonl --valid proteins/valid.jsonl --out runs/proteins
      regard heads runs/proteins --contacts proteins/test.jsonl
    """
    from regard.data.synthetic.proteins import proteins as sampled
    from regard.data.synthetic.world import Split

    def rows(split: Split, count: int) -> Iterator[tuple[str, ...]]:
        for one in sampled(count, families=families, seed=seed, split=split):
            yield (json.dumps({"text": one.text, "contacts": one.contacts}),)

    write_parts(out, {"train": train, "valid": valid, "test": test}, (".jsonl",), rows)


@app.command("scenes", short_help="Write scenes with captions.")
def scenes(
    out: Directory,
    train: Training = 20_000,
    valid: Validation = 1000,
    test: Testing = 1000,
    combinations: Annotated[
        int, typer.Option(help="Scenes with colours and shapes that the others never have together.", min=1)
    ] = 1000,
    language: Annotated[str, typer.Option(help="Of the captions: en or fr.")] = "en",
    size: Annotated[int, typer.Option(help="Pixels on a side.", min=64, max=1024)] = 64,
    seed: Seed = 1,
) -> None:
    """Write scenes of coloured shapes, with captions in English or French and the box of every noun.

    Writes a folder of PNG files for each part, train.tsv, valid.tsv, test.tsv and combinations.tsv with an image and a
    caption in each row, several rows where several captions are right, and beside each a .jsonl with the objects, in a
    scene of 64 pixels, and for every noun of a caption its characters and boxes, in pixels of the image. The parts
    other than train are the same for every seed, and their captions never occur in training.

    \b
    Examples:
      regard data scenes scenes --train 5000
      regard train --preset caption-tiny --data scenes --out runs/scenes
    """
    from regard.data.synthetic.scenes import SIDE, Language, ScenePart, draw
    from regard.data.synthetic.scenes import scenes as sampled
    from regard.errors import ConfigError, nearest
    from regard.look.packed_arrays import png_bytes

    if language not in get_args(Language):
        raise ConfigError(f"unknown language '{language}'{nearest(language, get_args(Language))}")
    if size % SIDE:
        raise ConfigError(f"--size={size} must be a multiple of {SIDE}")

    def rows(part: ScenePart, count: int) -> Iterator[tuple[str, ...]]:
        for number, scene in enumerate(sampled(count, seed=seed if part == "train" else 0, part=part)):
            name = f"{part}/{number:06d}.png"
            (out / name).write_bytes(png_bytes(draw(scene, size)))
            captions = scene.captions(cast("Language", language))
            record = {
                "image": name,
                "kind": scene.kind,
                "things": [{**asdict(thing), "box": thing.box} for thing in scene.things],
                "captions": [asdict(caption.scaled(size // SIDE)) for caption in captions],
            }
            pairs = "\n".join(f"{name}\t{caption.text}" for caption in captions)
            yield pairs, json.dumps(record, ensure_ascii=False)

    parts: dict[ScenePart, int] = {"train": train, "valid": valid, "test": test, "combinations": combinations}
    write_parts(out, parts, (".tsv", ".jsonl"), rows, header="image\tcaption", folders=True)


@app.command("speech", short_help="Write spoken digits or words.")
def speech(
    out: Directory,
    train: Training = 5000,
    valid: Validation = 500,
    test: Testing = 500,
    lexicon: Annotated[str, typer.Option(help="What is said: digits, or words.")] = "digits",
    seed: Seed = 1,
) -> None:
    """Write spoken digits or words of the bundled synthesiser, in voices that differ, in noise.

    Writes a folder of WAV files for each part, train.tsv, valid.tsv and test.tsv with a sound and its text in each row,
    and beside each a .jsonl with the voice, the noise, and when each word begins and ends. Each part has voices of its
    own, and the parts other than train are the same for every seed.

    \b
    Examples:
      regard data speech spoken --train 2000
      regard train --preset speech-tiny --data spoken --out runs/spoken
    """
    from regard.data.audio import write_wav
    from regard.data.synthetic.speech import RATE, Lexicon, SpeechPart, speak, utterances
    from regard.errors import ConfigError, nearest

    if lexicon not in get_args(Lexicon):
        raise ConfigError(f"unknown lexicon '{lexicon}'{nearest(lexicon, get_args(Lexicon))}")
    chosen = cast("Lexicon", lexicon)

    def rows(part: SpeechPart, count: int) -> Iterator[tuple[str, ...]]:
        own = seed if part == "train" else 0
        for number, said in enumerate(utterances(count, seed=own, part=part, lexicon=chosen)):
            name, spoken = f"{part}/{number:06d}.wav", speak(said)
            (out / name).write_bytes(write_wav(spoken.samples, RATE))
            record = {
                "sound": name,
                "text": said.text,
                "voice": said.voice,
                "above_noise": round(said.above_noise, 2),
                "times": spoken.times,
            }
            yield f"{name}\t{said.text}", json.dumps(record)

    parts: dict[SpeechPart, int] = {"train": train, "valid": valid, "test": test}
    write_parts(out, parts, (".tsv", ".jsonl"), rows, header="sound\ttext", folders=True)


@app.command("sources", short_help="Write rows of several sources.")
def sources(
    out: Directory,
    kind: Annotated[str, typer.Option(help="paraphrases, ambiguous or spoken.")] = "paraphrases",
    train: Training = 20_000,
    valid: Validation = 1000,
    test: Testing = 1000,
    seed: Seed = 1,
) -> None:
    """Write rows of several sources that only together decide what to write.

    paraphrases: two ways to say one statement, words of each smudged, and the statement. ambiguous: an English
    sentence, a scene as a PNG file, and the French sentence, of which the scene decides a word; a third of those to
    train on have no sentence and say what the scene shows. spoken: an English sentence of which a word is smudged, a
    WAV file with that word, and the whole sentence. Writes train.tsv, valid.tsv and test.tsv, whose header
    names the sources and the output.

    \b
    Examples:
      regard data sources rows --train 5000
      regard data sources scenes --kind ambiguous
      regard data sources words --kind spoken --train 2000
    """
    import numpy as np

    from regard.data.audio.sound import write_wav
    from regard.data.synthetic.several_sources import SOURCES, SourcesKind, SourcesPart, sourced_rows
    from regard.data.synthetic.speech import RATE, Utterance, speak
    from regard.errors import ConfigError, nearest
    from regard.look.packed_arrays import png_bytes

    if kind not in get_args(SourcesKind):
        raise ConfigError(f"unknown kind '{kind}'{nearest(kind, get_args(SourcesKind))}")
    chosen = cast("SourcesKind", kind)
    names = [name.rpartition(":")[2] for name in SOURCES[chosen]]

    def rows(part: SourcesPart, count: int) -> Iterator[tuple[str, ...]]:
        drawn = sourced_rows(chosen, count, seed=seed if part == "train" else 0, part=part)
        for number, row in enumerate(drawn):
            cells = []
            for one in row.sources:
                if isinstance(one, np.ndarray):
                    cells.append(f"{part}/{number:06d}.png")
                    (out / cells[-1]).write_bytes(png_bytes(one))
                elif isinstance(one, Utterance):
                    cells.append(f"{part}/{number:06d}.wav")
                    (out / cells[-1]).write_bytes(write_wav(speak(one).samples, RATE))
                else:
                    cells.append(one or "")
            yield ("\t".join([*cells, row.output]),)

    parts: dict[SourcesPart, int] = {"train": train, "valid": valid, "test": test}
    filed = any(":" in name for name in SOURCES[chosen])
    write_parts(out, parts, (".tsv",), rows, header="\t".join([*names, "output"]), folders=filed)


@app.command("sort", short_help="Write sorting problems.")
def sort(
    out: Directory,
    train: Training = 10_000,
    valid: Validation = 1000,
    test: Testing = 1000,
    size: Annotated[int, typer.Option(help="Numbers of a problem, or the most of them.", min=1)] = 10,
    fewest: Annotated[int | None, typer.Option(help="The fewest, where sizes should differ.", min=1)] = None,
    seed: Seed = 1,
) -> None:
    """Write sorting problems: numbers, and their positions from the smallest to the largest.

    Writes train.jsonl, valid.jsonl and test.jsonl. A pointing model can also sample such problems itself while it
    trains, so these files are for looking at, or for other tools.

    \b
    Examples:
      regard data sort problems
      regard data sort problems --size 20 --fewest 5 --train 100000
    """
    write_puzzle("sort", out, train, valid, test, size, fewest, seed)


@app.command("hull", short_help="Write convex hulls.")
def hull(
    out: Directory,
    train: Training = 10_000,
    valid: Validation = 1000,
    test: Testing = 1000,
    size: Annotated[int, typer.Option(help="Points of a problem, or the most of them.", min=3)] = 10,
    fewest: Fewest = None,
    seed: Seed = 1,
) -> None:
    """Write convex hulls: points, and the corners of their hull, counter-clockwise from the leftmost.

    \b
    Examples:
      regard data hull problems --size 20
    """
    write_puzzle("hull", out, train, valid, test, size, fewest, seed)


@app.command("tsp", short_help="Write round tours through cities.")
def tsp(
    out: Directory,
    train: Training = 10_000,
    valid: Validation = 1000,
    test: Testing = 1000,
    size: Annotated[int, typer.Option(help="Cities of a problem, or the most of them.", min=3)] = 10,
    fewest: Fewest = None,
    seed: Seed = 1,
) -> None:
    """Write round tours: cities, and a shortest way through all of them, counter-clockwise from the leftmost.

    Tours are the shortest up to 12 cities; above, good ones.

    \b
    Examples:
      regard data tsp problems --size 10 --test 500
    """
    write_puzzle("tsp", out, train, valid, test, size, fewest, seed)


def write_parts(
    out: Path,
    parts: Mapping[Any, int],
    suffixes: Sequence[str],
    rows: Callable[[Any, int], Iterable[tuple[str, ...]]],
    *,
    header: str = "",
    folders: bool = False,
) -> None:
    """A file of each suffix for every part, all of them or none; their first ones are printed.

    `rows` gives so many rows of a part: what each file has of it. The first file begins with the `header`. With
    `folders` each part has a folder of its name, for files that rows name.
    """
    from regard.cli.progress import counting
    from regard.runs.files import whole_file, whole_or_nothing

    with whole_or_nothing(out), ExitStack() as stack:
        for part, count in parts.items():
            if folders:
                (out / part).mkdir(exist_ok=True)
            paths = [stack.enter_context(whole_file(out / f"{part}{suffix}")) for suffix in suffixes]
            with counting(f"writing {part}") as progress, ExitStack() as opened:
                files = [opened.enter_context(path.open("w", encoding="utf-8", newline="\n")) for path in paths]
                files[0].write(f"{header}\n" if header else "")
                for number, row in enumerate(rows(part, count), 1):
                    for file, line in zip(files, row, strict=True):
                        file.write(f"{line}\n")
                    if number % 100 == 0:
                        progress(number, count)
    for part in parts:
        print(out / f"{part}{suffixes[0]}")


def write_puzzle(
    name: str, out: Path, train: int, valid: int, test: int, size: int, fewest: int | None, seed: int
) -> None:
    """The three files of a puzzle, or none."""
    from regard.cli.progress import counting
    from regard.data.synthetic.puzzles import puzzle_named, sample_problems, write_problems
    from regard.errors import ConfigError
    from regard.runs.files import whole_file, whole_or_nothing

    if fewest is not None and fewest > size:
        raise ConfigError(f"--fewest={fewest} must be at most --size={size}")
    puzzle, parts = puzzle_named(name), {"train": train, "valid": valid, "test": test}
    with whole_or_nothing(out), ExitStack() as stack:
        for part, count in parts.items():
            with counting(f"writing {part}") as progress:
                made = sample_problems(
                    puzzle, count, (fewest or size, size), seed=seed, part=cast("Part", part), progress=progress
                )
                write_problems(stack.enter_context(whole_file(out / f"{part}.jsonl")), puzzle, made)
    for part in parts:
        print(out / f"{part}.jsonl")
