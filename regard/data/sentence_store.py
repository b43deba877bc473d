"""Documents as sentences of token ids, tokenised once: what pairs for pre-training are cut from."""

import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Int64, UInt

from regard.data.prepared_cache import cached, opened, stored, token_dtype, write_meta
from regard.data.readers import Documents
from regard.errors import DataError
from regard.text import Tokenizer

VERSION = 1
CHUNK = 4096  # sentences tokenised at a time

# After a mark that ends a sentence, what closes quotes and brackets, and a space that no small letter follows.
_END = re.compile(r"[.!?…][\"'”’»)\]]*\s+(?=[^\sa-z])|[。！？][」』”’]*\s*")


@dataclass(frozen=True, slots=True)
class SentenceCounts:
    documents: int
    sentences: int
    tokens: int

    def describe(self) -> str:
        """One line for a person."""
        documents = f"{self.documents:,} document" + "s" * (self.documents != 1)
        return f"{documents}, {self.sentences:,} sentences in {self.tokens:,} tokens"


@dataclass(frozen=True)
class SentenceStore:
    """Sentences one after another: sentence `i` is `tokens[offsets[i]:offsets[i + 1]]`, document `d` the sentences from
    `documents[d]` to `documents[d + 1]`. `begins` says which tokens begin a word."""

    tokens: UInt[np.ndarray, " tokens"]
    begins: Bool[np.ndarray, " tokens"]
    offsets: Int64[np.ndarray, " bounds"]
    documents: Int64[np.ndarray, " ends"]
    counts: SentenceCounts

    @classmethod
    def open(cls, folder: Path) -> "SentenceStore":
        """The store that `prepare_sentences` left in `folder`."""
        with opened(folder, "sentences", VERSION) as meta:
            counts = SentenceCounts(**meta["counts"])
            arrays = {
                "tokens": (meta["dtype"], counts.tokens),
                "begins": ("bool", counts.tokens),
                "offsets": ("int64", counts.sentences + 1),
                "documents": ("int64", counts.documents + 1),
            }
            return cls(**{name: stored(folder / f"{name}.array", *of) for name, of in arrays.items()}, counts=counts)


def prepare_sentences(
    documents: Documents,
    tokenizer: Tokenizer,
    cache: Path,
    progress: Callable[[int], None] | None = None,
    say: Callable[[str], None] | None = None,
) -> SentenceStore:
    """The documents as sentences, from a folder under `cache`: reused when nothing changed, else written now.

    `progress` is called with the number of sentences so far, `say` told where a folder is damaged.
    """

    def write(folder: Path) -> None:
        dtype = token_dtype(tokenizer.vocab_size)
        offsets, ends = [0], [0]
        sentences = numbered_sentences(documents)
        with (folder / "tokens.array").open("wb") as tokens, (folder / "begins.array").open("wb") as begins:
            last = None
            while chunk := list(islice(sentences, CHUNK)):
                found = tokenizer.words([text for _, text in chunk])
                for (number, _), (ids, words) in zip(chunk, found, strict=True):
                    if not ids:
                        continue
                    if last is not None and number != last:
                        ends.append(len(offsets) - 1)
                    last = number
                    tokens.write(np.array(ids, dtype=dtype).tobytes())
                    begins.write((np.diff(np.array(words), prepend=-2) != 0).tobytes())
                    offsets.append(offsets[-1] + len(ids))
                if progress is not None:
                    progress(len(offsets) - 1)
        if len(offsets) == 1:
            blank = "there is no text: every document is blank"
            raise DataError(documents.none_left() if documents.share else blank)
        ends.append(len(offsets) - 1)
        (folder / "offsets.array").write_bytes(np.array(offsets, dtype=np.int64).tobytes())
        (folder / "documents.array").write_bytes(np.array(ends, dtype=np.int64).tobytes())
        counts = SentenceCounts(len(ends) - 1, len(offsets) - 1, offsets[-1])
        write_meta(folder, VERSION, dtype=dtype.name, counts=asdict(counts))

    key = ["sentences", VERSION, documents.digest(), tokenizer.digest()]
    return cached(cache, key, SentenceStore.open, write, say)


def numbered_sentences(documents: Documents) -> Iterator[tuple[int, str]]:
    """Every sentence with the number of its document. In a plain file a blank line ends a document; a row of JSONL,
    Parquet or a table is one."""
    number = 0
    for path in documents.paths:
        rows = documents.tabular(path)
        for piece in replace(documents, paths=(path,)):
            for line in piece.text.removesuffix("\n").split("\n"):
                if line.strip():
                    yield from ((number, sentence) for sentence in split_sentences(line))
                elif not rows:
                    number += 1
            number += piece.last


def split_sentences(line: str) -> list[str]:
    """The line cut after marks that end a sentence."""
    bounds = [0, *(match.end() for match in _END.finditer(line)), len(line)]
    parts = (line[start:stop].strip() for start, stop in pairwise(bounds))
    return [part for part in parts if part]
