"""A parser, with either encoder: steps are the whole, and whatever its weights say, what it writes is a tree."""

import random
from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from regard.data.trees import symbols_of, tree_from, tree_of
from regard.decode.config import DecodeConfig
from regard.decode.search import search
from regard.errors import ConfigError
from regard.models.tree_parser import ParserConfig, TreeParser, TreeSymbols
from regard.nn.batch import CLOSE, END, Parses, Texts, Tokens

LABELS = symbols_of([tree_of("(S (NP (DT a) (NN b)) (VP (VB c)))")], "tags")
NUMBERS = {label: number for number, label in enumerate(LABELS, 2)}
SMALL = ParserConfig(
    **{"vocab_size": 19, "labels": LABELS, "width": 8, "heads": 2, "layers": 2, "decoder_layers": 2},
    **{"feed_forward": 9, "dropout": 0.0, "attention_dropout": 0.0, "max_len": 30, "max_depth": 5, "max_open": 3},
)
KINDS = {"attention": {}, "recurrent": {"encoder": "recurrent"}, "segments": {"segments": 2}}
every_kind = pytest.mark.parametrize("kind", KINDS)


def make(kind, **settings):
    torch.manual_seed(0)
    return TreeParser(replace(SMALL, **KINDS[kind], **settings)).eval()


def row(text):
    return [END, *(CLOSE if one == ")" else NUMBERS[one] for one in text.split()), END]


TREES = ["(S (NP DT NN ) (VP VB ) )", "(S NN )", "(S (VP (VP VB ) NN ) (NP (NP DT ) ) )"]


def batch(trees=TREES):
    pieces = [[5, 6, 6, 7, 8], [9, 10], [11, 12, 13, 14]]
    words = [[1, 2, 2, 3, 0], [1, 0], [0, 1, 2, 3]]
    target = None if trees is None else Tokens.of([row(tree) for tree in trees])
    count = 0 if target is None else int(target.lengths.sum()) - 3
    return Parses(Texts(Tokens.of(pieces)), Tokens.of(words).ids, torch.tensor([3, 1, 3]), 3, target, count)


@every_kind
@torch.no_grad()
def test_steps_give_what_the_whole_gives(kind):
    model, given = make(kind), batch()
    whole = model(given)
    state = model.start(batch(None))
    for t in range(given.inputs.ids.shape[1]):
        log_probs, state = model.step(given.inputs.ids[:, t], state)
        real = given.labels[:, t] >= 0
        assert_close(log_probs[real], whole[real, t], atol=1e-5, rtol=1e-5)


@every_kind
@torch.no_grad()
def test_the_right_symbol_can_always_stand_there_and_a_later_one_changes_no_earlier_prediction(kind):
    model, given = make(kind), batch()
    before, labels = model(given), given.labels
    assert before.gather(2, labels.clamp_min(0)[..., None])[..., 0][labels >= 0].isfinite().all()
    ids = given.target.ids.clone()
    ids[:, 2:] = CLOSE
    later = model(replace(given, target=replace(given.target, ids=ids)))
    assert_close(later[:, :2], before[:, :2])


@pytest.mark.parametrize("scale", [1.0, 30.0])
@every_kind
@torch.no_grad()
def test_whatever_the_weights_every_output_is_a_tree_over_its_words(kind, scale):
    """Three hundred outputs here; benchmarks/untrained_parsers.py makes ten thousand."""
    rng = random.Random(7)
    ways = [
        DecodeConfig(beam=1),
        DecodeConfig(beam=9, top_beams=3, length_penalty=0.0),  # more than may open at first
        DecodeConfig(beam=1, temperature=2.0, samples=3),
    ]
    for depth, opened in ((1, 1), (2, 3), (5, 2)):
        model = make(kind, max_depth=depth, max_open=opened)
        for weight in model.parameters():
            weight.mul_(scale)
        lengths = [rng.randint(1, 9) for _ in range(6)]
        pieces = Tokens.of([[5 + rng.randrange(14) for _ in range(length)] for length in lengths])
        words = Tokens.of([list(range(1, length + 1)) for length in lengths]).ids
        given = Parses(Texts(pieces), words, torch.tensor(lengths), max(lengths))
        limits = torch.tensor(lengths) * (2 * opened + 1) + 1
        for config in ways:
            first = torch.full((6,), END)
            found = search(model, model.start(given), first, eos=END, config=config, max_len=limits, ids=range(6))
            for length, several in zip(lengths, found, strict=True):
                assert several
                for one in several:
                    assert one.finished
                    assert tree_from(one.tokens, LABELS, ["w"] * length).words == ("w",) * length


def test_following_symbols_and_advancing_by_one_agree_on_random_trees():
    symbols, rng = TreeSymbols(SMALL), random.Random(3)
    for _ in range(20):
        length = torch.tensor([[rng.randint(1, 6)]])
        choices, now = [END], symbols.begin(1, torch.device("cpu"))
        while True:
            step, now = symbols.advance(torch.tensor(choices[-1:]), now)
            whole = symbols.follow(torch.tensor([choices]))
            for name in ("last", "shifted", "depth", "opened", "label", "start"):
                assert getattr(step, name)[0, 0] == getattr(whole, name)[0, -1], name
            possible = symbols.possible(step, length)
            assert torch.equal(possible[0, 0], symbols.possible(whole, length)[0, -1])
            choices.append(rng.choice(possible[0, 0].nonzero().flatten().tolist()))
            if choices[-1] == END:
                break
        assert len(choices) - 2 <= int(length) * (2 * SMALL.max_open + 1)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"labels": ("(S", "(S")}, "must differ"),
        ({"encoder": "recurrent", "width": 7, "heads": 1}, "must be even"),
        ({"max_depth": 0}, "max_depth=0"),
        ({"cross_heads": (3, 2)}, "cross_heads"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(settings, said):
    with pytest.raises(ConfigError, match=said):
        replace(SMALL, **settings)


def test_symbols_without_brackets_or_without_words_are_refused():
    for labels in ((), ("XX",), ("(S",)):
        with pytest.raises(ConfigError, match="must have brackets"):
            TreeParser(replace(SMALL, labels=labels))
