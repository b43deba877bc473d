"""Files to batches: readers, the prepared cache, token-budget batches and a loader that resumes anywhere."""

from regard.data.batches import Position, collate, epoch_order, evaluation_batches, evaluation_order
from regard.data.loader import Loader
from regard.data.pair_store import Counts, Overlong, PairStore, Rows, prepare
from regard.data.readers import Corpus, Documents, PairFiles, PairList, TextFiles
from regard.data.text_windows import (
    StreamLayout,
    TextStore,
    WindowLayout,
    backward_windows,
    prepare_text,
    streamed_windows,
    strided_windows,
)

__all__ = [
    "Corpus",
    "Counts",
    "Documents",
    "Loader",
    "Overlong",
    "PairFiles",
    "PairList",
    "PairStore",
    "Position",
    "Rows",
    "StreamLayout",
    "TextFiles",
    "TextStore",
    "WindowLayout",
    "backward_windows",
    "collate",
    "epoch_order",
    "evaluation_batches",
    "evaluation_order",
    "prepare",
    "prepare_text",
    "streamed_windows",
    "strided_windows",
]
