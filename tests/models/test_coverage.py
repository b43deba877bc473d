"""The coverage penalty of every model that attends to its source is that of the attention it pays, read apart."""

import pytest
import torch
from model_zoo import MODELS, make

from regard.decode.beam import beam_search
from regard.decode.config import DecodeConfig
from regard.errors import ConfigError
from regard.look import watch
from regard.nn.batch import Pairs, Tokens
from regard.tasks.cross_attention import AttendingStepper, aligning_attention

BOS, EOS = 1, 2
SOURCES = [[4, 5, 6, 7, 8, 2], [7, 8, 2], [9, 9, 12, 2]]
WITHOUT = ("context first", "context at every step", "context first, backward, copied")


def searched(model, sources, **settings):
    stepper = AttendingStepper(model, "this")
    config = DecodeConfig(beam=3, top_beams=2, max_len=7, **settings)
    first = torch.full((len(sources),), BOS)
    with torch.inference_mode():
        return beam_search(stepper, stepper.start(Pairs(Tokens.of(sources))), first, eos=EOS, config=config)


@pytest.mark.parametrize("name", [name for name in MODELS if name not in WITHOUT])
def test_a_score_has_the_penalty_of_the_attention_paid(name):
    model = make(name)
    watched = aligning_attention(model, "this")
    found = searched(model, SOURCES, coverage_penalty=0.5)
    for row, best in zip(SOURCES, found, strict=True):
        for one in best:
            choices = [*one.tokens, *[EOS] * one.finished]
            with torch.inference_mode(), watch(model, watched) as trace:
                model(Pairs(Tokens.of([row]), Tokens.of([[BOS, *choices]])))
            paid = trace.weights(watched)[0].mean(0)[: len(choices), : len(row)].sum(0)
            penalty = 0.5 * float(paid.clamp(max=1.0).log().sum())
            assert one.score == pytest.approx(DecodeConfig().score(one.log_prob, len(choices)) + penalty, abs=1e-3)
        alone = searched(model, [row], coverage_penalty=0.5)[0]
        assert [each.score for each in alone] == pytest.approx([each.score for each in best], abs=1e-3)


@pytest.mark.parametrize("name", WITHOUT)
def test_a_model_that_attends_to_nothing_is_refused(name):
    with pytest.raises(ConfigError, match="this needs a model that attends to its source, and RecurrentModel does not"):
        searched(make(name), SOURCES)
