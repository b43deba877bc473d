"""How weights are initialised, stated in one place."""

import re

from torch import nn

from regard.nn.embeddings import Embedding, OutputProjection
from regard.nn.recurrent.layers import RecurrentLayer


def initialise(module: nn.Module) -> None:
    """Xavier-uniform matrices and zero biases, as in the 2017 paper's code; token vectors normal with std width^-0.5.

    Token vectors are multiplied by sqrt(width) on the way in, so they enter with unit variance, and serve as they are
    on the way out, so first predictions are near uniform. Norms start as the identity; learned positions and recurrent
    cells have their own initialisation.
    """
    for part in module.modules():
        if isinstance(part, nn.Linear):
            nn.init.xavier_uniform_(part.weight)
            if part.bias is not None:
                nn.init.zeros_(part.bias)
        elif isinstance(part, Embedding):
            table = part.tokens
            nn.init.normal_(table.weight, std=table.embedding_dim**-0.5)
    tables = {id(part.tokens.weight) for part in module.modules() if isinstance(part, Embedding)}
    for part in module.modules():
        if isinstance(part, OutputProjection) and id(part.weight) not in tables:
            nn.init.xavier_uniform_(part.weight)
    for part in module.modules():
        if isinstance(part, RecurrentLayer):
            part.initialise()


def initialise_small(module: nn.Module, layers: int | None = None) -> None:
    """Matrices and token vectors normal with std 0.02 and zero biases, as in BERT.

    Given `layers`, what each sublayer adds to the residual starts smaller by sqrt(2 layers), as in GPT-2, so that their
    sum keeps its size however deep the stack; where norms come after, they see to that.
    """
    for name, part in module.named_modules():
        if isinstance(part, nn.Linear):
            into_residual = re.search(r"attention\.output$|feed_forward\.outer$", name)
            nn.init.normal_(part.weight, std=0.02 / (2 * layers) ** 0.5 if layers and into_residual else 0.02)
            if part.bias is not None:
                nn.init.zeros_(part.bias)
        elif isinstance(part, (nn.Embedding, OutputProjection)):
            nn.init.normal_(part.weight, std=0.02)
