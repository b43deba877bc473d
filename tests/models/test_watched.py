"""Watched weights, held against a float64 computation of their own from the parameters, in every model there is."""

import copy
import itertools
import math
import subprocess
import sys
import textwrap
from dataclasses import replace

import pytest
import torch
from model_zoo import ENCODERS, MODELS, PICTURE_MODELS, batch, make, texts
from torch.testing import assert_close

from regard.decode.beam import beam_search
from regard.decode.config import DecodeConfig
from regard.decode.greedy import greedy
from regard.errors import ConfigError
from regard.look import attentions, watch
from regard.nn.attention import Attention
from regard.nn.attention_scores import ScoredAttention
from regard.nn.batch import Images, Pairs, Tokens
from regard.nn.positions import Alibi
from regard.training.objectives import SequenceToSequence

every_model = pytest.mark.parametrize("name", MODELS)
SOURCES, TARGETS = [[4, 5, 6, 7, 8], [7, 8]], [[1, 9, 10, 4, 2], [1, 11, 2]]
BOS, EOS = 1, 2


@pytest.mark.parametrize("name", [*MODELS, *ENCODERS, *PICTURE_MODELS])
def test_weights_equal_a_float64_computation_from_the_parameters(name):
    model = make(name)
    if not attentions(model):
        return
    inputs, sizes = read_by(name, model)
    with torch.no_grad(), watch(model) as trace:
        model.logits(inputs)
    double, given = copy.deepcopy(model).double(), {}
    hooks = [
        attention.register_forward_pre_hook(lambda _, args, one=one: given.__setitem__(one, args))
        for one, attention in attentions(double).items()
    ]
    for one, attention in attentions(double).items():
        if isinstance(attention, Attention):
            note_what_is_projected(one, attention, given)
    with torch.no_grad(), watch(double, parts=("q", "k", "v")) as exact:
        double.logits(replace(inputs, pixels=inputs.pixels.double()) if name in PICTURE_MODELS else inputs)
    for hook in hooks:
        hook.remove()
    for one, attention in attentions(double).items():
        for row, (source, target) in enumerate(sizes):
            own = target if one.startswith("decoder") or "cross" in one else source
            seen = source if "cross" in one else own
            if isinstance(attention, ScoredAttention):
                q, k, v = (part[row, 0] for part in (exact[one].q, exact[one].k, exact[one].v))
                scores = scored(attention.score, q[:own], k[:seen], v[:seen])[None]
            else:
                x, memory, _ = given[one] if one in given else (*given["projected", one], None)
                memory = x if memory is None else memory
                causal = one.startswith("decoder") and "cross" not in one
                window = None if "cross" in one else getattr(double.config, "window", None)
                scaled = getattr(double.config, "scaled", True)
                scores = by_heads(attention, x[row, :own], memory[row, :seen], causal, window, scaled)
            found = trace.weights(one)[row, :, :own].double()
            assert_close(found[..., :seen], scores.softmax(-1), atol=1e-5, rtol=0)
            assert not found[..., seen:].any()


def note_what_is_projected(name, attention, given):
    """For an attention that is asked for its projections alone, as one that words are copied by."""
    queries, keys_values = attention.queries, attention.keys_values
    found = given.setdefault(("projected", name), [None, None])

    def noted(place, project):
        def noting(x, *rest):
            found[place] = x
            return project(x, *rest)

        return noting

    attention.queries, attention.keys_values = noted(0, queries), noted(1, keys_values)


def read_by(name, model):
    """Something for the model to read, and how many places each row of it has on either side."""
    if name in ENCODERS:
        return texts(SOURCES), [(len(source), 0) for source in SOURCES]
    if name in PICTURE_MODELS:
        generator = torch.Generator().manual_seed(0)
        pixels = torch.randn(2, model.config.channels, 12, 12, generator=generator)
        return Images(pixels, torch.zeros(2, dtype=torch.long), 2), [(10, 0), (10, 0)]
    return batch(SOURCES, TARGETS), [(len(a), len(b) - 1) for a, b in zip(SOURCES, TARGETS, strict=True)]


def by_heads(attention, x, memory, causal, window, scaled):
    """Every score by itself: q.k / sqrt(K), turned, penalised and hidden as the model's settings say."""
    q = turned(attention, normed(split(x, attention.query, attention.heads), attention.query_norm))
    k = turned(attention, normed(split(memory, attention.key, attention.kv_heads), attention.key_norm))
    scores = torch.empty(attention.heads, len(x), len(memory), dtype=torch.float64)
    for head in range(attention.heads):
        for i in range(len(x)):
            for j in range(len(memory)):
                score = q[i, head] @ k[j, head * attention.kv_heads // attention.heads]
                score = score / math.sqrt(q.shape[-1]) if scaled else score
                hidden = (causal and j > i) or (window is not None and abs(i - j) >= window)
                scores[head, i, j] = -math.inf if hidden else score + added(attention, head, j - i)
    return scores


def added(attention, head, offset):
    """What a score gains by the distance alone."""
    distances = attention.distances
    if distances is None:
        return 0.0
    if isinstance(distances, Alibi):
        return -(2.0 ** (-8.0 * (head + 1) / attention.heads)) * abs(offset)
    buckets, first, distance = len(distances.table), 0, max(0, -offset)
    if distances.both_ways:
        buckets //= 2
        first, distance = (buckets if offset > 0 else 0), abs(offset)
    single = buckets // 2
    if distance >= single:
        growth = math.log(distance / single) / math.log(distances.furthest / single)
        distance = min(buckets - 1, single + int(growth * (buckets - single)))
    return distances.table[first + distance, head]


def split(vectors, linear, heads):
    bias = 0.0 if linear.bias is None else linear.bias
    return (vectors @ linear.weight.T + bias).view(len(vectors), heads, -1)


def normed(vectors, norm):
    return vectors if norm is None else vectors / (vectors.square().mean(-1, True) + 1e-6).sqrt() * norm.weight


def turned(attention, vectors):
    if attention.rotary is None:
        return vectors
    half, out = vectors.shape[-1] // 2, torch.empty_like(vectors)
    for place, pair in itertools.product(range(len(vectors)), range(half)):
        angle = place * attention.rotary.base ** (-pair / half)
        a, b = (pair, pair + half) if attention.rotary.layout == "halves" else (2 * pair, 2 * pair + 1)
        turn = torch.tensor([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]).double()
        out[place, :, [a, b]] = vectors[place, :, [a, b]] @ turn.T
    return out


def scored(score, q, k, values):
    """Each score function by its formula; `k` is what its `keys` made of the memory."""
    kind = type(score).__name__
    if kind == "Additive":
        mixed = (q @ score.query.weight.T)[:, None] + k
        return torch.tanh(mixed) @ score.vector.weight[0]
    if kind == "Location":
        return (q @ score.places.weight.T)[:, : len(k)]
    if kind == "Cosine":
        return score.sharpness * (q / q.norm(dim=-1, keepdim=True)) @ (values / values.norm(dim=-1, keepdim=True)).T
    if kind == "General":
        return q @ score.weight.weight.T @ k.T
    return q @ k.T / (math.sqrt(q.shape[-1]) if kind == "ScaledDot" else 1.0)


@every_model
@pytest.mark.parametrize("beam", [1, 3])
def test_the_winning_output_of_a_search_is_followed_in_order(name, beam):
    model = make(name)
    names = [one for one in attentions(model) if not one.startswith("encoder")]
    if not names:
        return
    config = DecodeConfig(beam=beam, top_beams=1, max_len=6, max_ratio=None)
    search = greedy if beam == 1 else beam_search
    with watch(model, names) as trace:
        found = search(model, model.start(Pairs(Tokens.of(SOURCES))), torch.full((2,), BOS), eos=EOS, config=config)
    for source, best in zip(SOURCES, found, strict=True):
        best = best if beam == 1 else best[0]
        with torch.no_grad(), watch(model, names) as forced:
            model.logits(batch([source], [[BOS, *best.tokens, EOS]]))
        for one in names:
            weights = trace.followed(one, best.rows)
            assert weights.shape[1] == len(best.rows)
            wanted = forced.weights(one)[0, :, : len(best.rows), : weights.shape[2]]
            assert_close(weights[:, :, : wanted.shape[2]], wanted, atol=1e-5, rtol=0)


def test_steps_that_were_not_seen_cannot_be_followed():
    model = make("transformer, norm first")
    with torch.no_grad(), watch(model) as trace:
        model.logits(batch(SOURCES, TARGETS))
    with pytest.raises(ConfigError, match="was seen in 1 steps with weights, not in all of 3"):
        trace.followed("decoder.0.attention", [0, 0, 0])


@every_model
def test_watching_changes_neither_loss_nor_gradient_of_training(name):
    model = make(name).train()
    if not attentions(model):
        return
    for module in model.modules():
        if isinstance(module, Attention):
            module.dropout = 0.3
    found = []
    for watched in (False, True):
        torch.manual_seed(0)
        if watched:
            with watch(model) as trace:
                loss = SequenceToSequence(0.1).loss(model, batch(SOURCES, TARGETS)).total
        else:
            loss = SequenceToSequence(0.1).loss(model, batch(SOURCES, TARGETS)).total
        found.append((loss, *torch.autograd.grad(loss, list(model.parameters()))))
    for one, other in zip(*found, strict=True):
        assert_close(one, other, atol=0, rtol=0)
    for one in trace.names:
        weights = trace.weights(one)[0]  # before dropout: every row is whole
        assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))


def test_layers_are_chosen_by_number():
    model = make("transformer, norm first")
    with torch.no_grad(), watch(model, layers=1) as trace:
        model.logits(batch(SOURCES, TARGETS))
    assert trace.names == ["encoder.1.attention", "decoder.1.attention", "decoder.1.cross_attention"]
    with watch(model, "encoder.*", layers=[0, 1]) as trace:
        assert trace.names == ["encoder.0.attention", "encoder.1.attention"]
    with pytest.raises(ConfigError, match=r"no layer 2 among those named; there are \[0, 1\]"), watch(model, layers=2):
        pass


MEMORY = """
    import resource
    import torch
    from regard.look import watch
    from regard.nn.attention import Attention

    torch.set_num_threads(1)
    torch.manual_seed(0)
    attention = Attention(64, 8).eval()
    x = torch.randn(1, 4096, 64)
    peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    with torch.inference_mode():
        attention(x)
        before = peak()
        with watch(attention, heads=[3]) as trace:
            watched = attention(x)
        used = peak() - before
        weights = trace.weights("")
        assert weights.shape == (1, 1, 4096, 4096)
        assert torch.equal(watched, attention(x))
        q, k = attention.query(x)[0].double(), attention.key(x)[0].double()
        rows = [0, 1023, 1024, 4095]
        exact = (q[rows, 24:32] @ k[:, 24:32].T / 8**0.5).softmax(-1)
        assert (weights[0, 0, rows] - exact).abs().max() < 1e-6
    print(used)
"""


def test_one_head_of_a_long_input_is_watched_in_little_more_than_its_own_weights():
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(MEMORY)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    # One head's weights are 64 MiB; all eight heads' would be 512, and their scores as much again.
    assert float(done.stdout) < 64 + 48
