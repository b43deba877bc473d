"""Text embeddings, by an encoder that was imported. Such a run is used and fine-tuned from, not trained."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from regard.data import Documents
from regard.nn.batch import Texts
from regard.tasks.corpora import TextData
from regard.tasks.encoder_tasks import EncoderTask
from regard.tasks.probes import HeldOutData, Probe, are_trees, framed_text_probes, framed_tree_probes, held_out_files
from regard.tasks.run import Run
from regard.tasks.spec import OF_PAIRS
from regard.training.objectives import Loss


class HeldOutVectors(HeldOutData):
    """Texts alone: how near their vectors stay to those of the whole model, as a cosine in hundredths."""

    name = "cosine"
    unsloped = "vectors are nearest to themselves"

    def inputs(self, batch: "TextsWithVectors") -> Texts:
        return batch.inputs

    def score(self, run: Run) -> float:
        return 100 * (1 - self.nll(run.model))


@dataclass(frozen=True, slots=True)
class TextsWithVectors:
    """Texts, and the vectors that they should have."""

    inputs: Texts
    vectors: Float[Tensor, "B D"]

    @property
    def count(self) -> int:
        return self.vectors.shape[0]

    def to(self, device: torch.device | str) -> "TextsWithVectors":
        return TextsWithVectors(self.inputs.to(device), self.vectors.to(device))


@dataclass(frozen=True, slots=True)
class CosineToVectors:
    """Give each text the vector it had: the loss is one less the cosine."""

    def loss(self, model: Any, batch: TextsWithVectors) -> Loss:
        near = F.cosine_similarity(model.text_vectors(batch.inputs), batch.vectors)
        total = (1 - near).sum()
        return Loss(total, batch.count, {"nll": total.detach()})


class EmbeddingTask(EncoderTask):
    """Texts to vectors."""

    name = "embedding"
    about = "a vector for each text"
    data = TextData
    unused: ClassVar = (*OF_PAIRS, "images", "decode")
    trains = False

    def probes(self, run: Run, data: Documents | Sequence[str] | None, limit: int) -> list[Probe]:
        if isinstance(data, Sequence) and are_trees(data):
            return framed_tree_probes(run, data, limit)
        documents = data if isinstance(data, Documents) else documents_in(run, data)
        return framed_text_probes(run, documents, limit)

    @torch.no_grad()
    def held_out_data(self, run: Run, files: Sequence[str] | None, limit: int) -> HeldOutData:
        documents = documents_in(run, held_out_files(run, files))
        lines = (line for text in documents.texts() for line in text.splitlines() if line.strip())
        encoder = run.encoder
        rows = [row for line in islice(lines, limit) if (row := encoder.framer.texts(line, overlong="truncate"))]
        run.model.eval()
        batches = [TextsWithVectors(texts, encoder.model.text_vectors(texts)) for _, texts in encoder.batches(rows)]
        return HeldOutVectors(run, CosineToVectors(), batches, len(rows))


def documents_in(run: Run, files: Sequence[str] | None) -> Documents:
    """Running text in files, by default the run's own."""
    return Documents.of(held_out_files(run, files), run.config.data.text, run.config.data.header)


TASK = EmbeddingTask()
