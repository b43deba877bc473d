"""Documents for the pages that the tests open: small ones with everything in them, and a long one."""

import dataclasses

import torch

from regard.look.document import AttentionMap, Candidate, Document, Neurons, Sentence, Side

MARKUP = '<img src=x onerror="document.title=1"><script>document.title=2</script>'
SOURCE, TARGET = ("The", "ani", "mal", "slept", "⟨end⟩"), ("L'", "ani", "mal", "dor", "mait", "⟨end⟩")


def attention(name, rows, columns, sides, *, heads=3, width=8, causal=False, seed=0):
    """An attention whose weights follow from its vectors, as in a model."""
    generator = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(heads, size, width, generator=generator) * 2 for size in (rows, columns, columns))
    scores = q @ k.mT * width**-0.5
    if causal:
        scores = scores.masked_fill(torch.ones(rows, columns).triu(1).bool(), -torch.inf)
    return AttentionMap(
        name=name,
        kind="self" if sides[0] == sides[1] or sides[1] == "prefix" else "cross",
        rows=sides[0],
        columns=sides[1],
        weights=scores.softmax(-1),
        neurons=Neurons(q=q, k=k, v=v, scale=width**-0.5),
    )


def sentence(**more):
    source = Side(text="The animal slept", pieces=SOURCE, words=("The", "animal", "slept"), word_of=(0, 1, 1, 2, None))
    words, word_of = ("L'", "animal", "dormait"), (0, 1, 1, 2, 2, None)
    target = Side(text="L'animal dormait", pieces=TARGET, words=words, word_of=word_of)
    prefix = Side(text=target.text, pieces=("⟨start⟩", *TARGET[:-1]), words=words, word_of=(None, *word_of[:-1]))
    S, T = len(SOURCE), len(TARGET)
    chances = [0.6, 0.3, 0.1]
    return Sentence(
        source=source,
        target=target,
        prefix=prefix,
        attentions=(
            attention("encoder.0.attention", S, S, ("source", "source"), seed=1),
            attention("decoder.0.attention", T, T, ("target", "prefix"), causal=True, seed=2),
            attention("decoder.0.cross_attention", T, S, ("target", "source"), seed=3),
        ),
        alignment=((0, 0), (1, 1), (2, 2)),
        candidates=tuple(
            tuple(Candidate(piece=one, probability=p) for one, p in zip((piece, "la", "le"), chances, strict=True))
            for piece in TARGET
        ),
        scores={"score": "-0.100"},
        **more,
    )


def small(**more):
    """Two sentences, so that one can be chosen."""
    plain = Sentence(
        source=Side(text=MARKUP, pieces=(MARKUP, "b", "\n")),
        attentions=(attention("blocks.0.attention", 3, 3, ("source", "source"), causal=True, seed=4),),
    )
    return Document(title=f"Where {MARKUP} looked", note=MARKUP, sentences=(sentence(), plain), **more)


def long(tokens=1000, heads=4, layers=2):
    """One text of so many tokens, whose heads look a little back."""
    generator = torch.Generator().manual_seed(0)
    places = torch.arange(tokens)
    distance = (places[:, None] - places).float()
    maps = []
    for layer in range(layers):
        scores = torch.randn(heads, tokens, tokens, generator=generator)
        scores -= (distance - 3 * torch.arange(1, heads + 1)[:, None, None]).abs() / (layer + 1)
        weights = scores.masked_fill(distance < 0, -torch.inf).softmax(-1)
        maps.append(
            AttentionMap(
                name=f"blocks.{layer}.attention", kind="self", rows="source", columns="source", weights=weights
            )
        )
    pieces = tuple(f"w{place}" for place in range(tokens))
    return Document(
        title="A long text",
        sentences=(Sentence(source=Side(text=" ".join(pieces), pieces=pieces), attentions=tuple(maps)),),
    )


def with_weights(document, weights):
    """The same document with other weights in its last attention."""
    first, *rest = document.sentences
    last = dataclasses.replace(first.attentions[-1], weights=weights, neurons=None)
    changed = dataclasses.replace(first, attentions=(*first.attentions[:-1], last))
    return dataclasses.replace(document, sentences=(changed, *rest))
