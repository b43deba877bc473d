"""Files to batches: readers, the prepared cache, token-budget batches and a loader that resumes anywhere."""

from regard.data.batches import Position, epoch_order, evaluation_order
from regard.data.cache import Overlong, prepare
from regard.data.documents import Documents
from regard.data.loader import Loader, collate, evaluation_batches
from regard.data.readers import Corpus, PairFiles, PairList, TextFiles
from regard.data.store import Counts, PairStore, Rows
from regard.data.streams import StreamLayout, streamed_windows
from regard.data.windows import TextStore, WindowLayout, backward_windows, prepare_text, strided_windows

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
