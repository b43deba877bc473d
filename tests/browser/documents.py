"""Documents for the pages that the tests open: small ones with everything in them, and a long one."""

import base64
import dataclasses
import functools
import struct
import zlib

import numpy as np
import torch

from regard.data.audio import write_wav
from regard.look.document import (
    AttentionMap,
    Branch,
    Candidate,
    Decoding,
    Document,
    Edited,
    Feature,
    HeadHistory,
    History,
    Mixture,
    Neurons,
    PatchedImage,
    Recurrence,
    Sentence,
    Side,
    SoundTrack,
    TreeNode,
    Units,
)
from regard.look.position_tables import PositionTable
from regard.nn.positions import Positions, sinusoidal

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
        decoding=Decoding(hidden=torch.randn(T, 7), context=torch.randn(T, 12), beam=beam(), mixture=mixture()),
        edited=tuple(
            Edited(
                attention=name,
                head=head,
                log_prob=-2.0 - head - len(kind) / 4,
                probabilities=(0.5,) * T,
                text=text,
                edit=kind,
                other=1 if kind == "swapped" else None,
            )
            for kind in ("masked", "even", "swapped")
            for name in ("encoder.0.attention", "decoder.0.cross_attention")
            for head, text in enumerate((target.text, f"Le chat {kind}", target.text))
        ),
        **more,
    )


def mixture():
    """The fourth piece of six is copied, the others are written."""
    return tuple(Mixture(writing=w, written=0.6 * w, copied=0.6 * (1 - w)) for w in (0.9, 0.9, 0.8, 0.25, 0.9, 1.0))


def beam():
    """Two kept, two pruned at each step; the second-best at first wins."""
    steps = []
    for step, piece in enumerate(TARGET):
        ends = step == len(TARGET) - 1
        parents = [-1] * 4 if step == 0 else [1 if step == 1 else 0, 0, 1, 1]
        steps.append(
            tuple(
                Branch(
                    piece=one,
                    parent=parent,
                    log_prob=-0.1 * (step + 1) - order,
                    fate="pruned" if order > 1 else "finished" if ends and order == 0 else "kept",
                    best=order == (1 if step == 0 else 0),
                )
                for order, (one, parent) in enumerate(zip((piece, "la", "le", MARKUP), parents, strict=True))
            )
        )
    return tuple(steps)


def png(width, height):
    """A grey gradient as a PNG, written out."""
    rows = b"".join(b"\0" + bytes((x + y) * 8 % 256 for x in range(width)) for y in range(height))

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    whole = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return "data:image/png;base64," + base64.b64encode(whole).decode()


def picture():
    """A picture of 4 x 3 patches, with a rollout of two layers."""
    pieces = ("[CLS]", *(f"{row},{column}" for row in range(1, 4) for column in range(1, 5)))
    sides = ("source", "source")
    maps = tuple(attention(f"blocks.{layer}.attention", 13, 13, sides, heads=2, seed=layer) for layer in range(2))
    seen = Sentence(
        source=Side(text="a.png", pieces=pieces),
        attentions=maps,
        picture=PatchedImage(image=png(16, 12), width=16, height=12, rows=3, columns=4),
        rollout=AttentionMap(
            name="rollout",
            kind="self",
            rows="source",
            columns="source",
            weights=torch.randn(2, 13, 13, generator=torch.Generator().manual_seed(9)).softmax(-1),
        ),
        scores={"cat": "90.0 %"},
    )
    return Document(title="A picture", sentences=(seen,))


def caption():
    """A picture of 2 x 2 patches and a caption of two words: within the image, within the caption, and across."""
    sides = {"blocks.0.attention": ("source", "source"), "decoder.0.attention": ("target", "prefix")}
    sides["decoder.0.cross_attention"] = ("target", "source")
    sizes = {"source": 4, "target": 3, "prefix": 3}
    maps = tuple(
        attention(name, sizes[pair[0]], sizes[pair[1]], pair, heads=2, seed=number)
        for number, (name, pair) in enumerate(sides.items())
    )
    seen = Sentence(
        source=Side(text="a.png", pieces=("1,1", "1,2", "2,1", "2,2")),
        target=Side.of("a ring", ["a", "ring", "⟨end⟩"], [(0, 1), (2, 6), (0, 0)]),
        prefix=Side.of("a ring", ["⟨start⟩", "a", "ring"], [(0, 0), (0, 1), (2, 6)]),
        attentions=maps,
        picture=PatchedImage(image=png(16, 16), width=16, height=16, rows=2, columns=2, first=0),
    )
    return Document(title="A caption", sentences=(seen,))


def sound():
    """A second of sound in five positions, and a text of two words: within the text, and across."""
    sides = {"decoder.0.attention": ("target", "prefix"), "decoder.0.cross_attention": ("target", "source")}
    sizes = {"source": 5, "target": 3, "prefix": 3}
    maps = tuple(
        attention(name, sizes[pair[0]], sizes[pair[1]], pair, heads=2, seed=number)
        for number, (name, pair) in enumerate(sides.items())
    )
    tone = np.sin(np.arange(1000)).astype(np.float32)
    audio = "data:audio/wav;base64," + base64.b64encode(write_wav(tone, 1000)).decode()
    track = SoundTrack(
        **{"audio": audio, "spectrogram": png(16, 8), "seconds": 1.0, "step": 0.2, "wave": (0.1, 1.0, 0.5)},
        words=((0.2, 0.4), (0.4, 0.8)),
        aligned=((0.2, 0.4), (0.4, 0.6), (0.0, 0.0)),
    )
    seen = Sentence(
        source=Side(text="a.wav", pieces=("0.0", "0.2", "0.4", "0.6", "0.8"), names=True),
        target=Side.of("one two", ["one", "two", "⟨end⟩"], [(0, 3), (4, 7), (0, 0)]),
        prefix=Side.of("one two", ["⟨start⟩", "one", "two"], [(0, 0), (0, 3), (4, 7)]),
        attentions=maps,
        sound=track,
    )
    return Document(title="A sound", sentences=(seen,))


def parse():
    """A tree over three words, and the attention of its six steps and the end to the words and their two edges."""
    nodes = (("S", -1, 0, None), ("NP", 0, 1, None), ("DT", 1, 2, 2), ("NN", 1, 3, 3), ("VBZ", 0, 5, 4))
    pieces = ("(S", "(NP", "DT", "NN", ")", "VBZ", ")", "⟨end⟩")
    return Document(
        title="A tree",
        sentences=(
            Sentence(
                source=Side(text="a dog sleeps", pieces=("⟨before⟩", "⟨after⟩", "a", "dog", "sleeps")),
                target=Side(text="(S (NP DT NN ) VBZ )", pieces=pieces, names=True),
                prefix=Side(text="(S (NP DT NN ) VBZ )", pieces=("⟨start⟩", *pieces[:-1]), names=True),
                attentions=(
                    attention("encoder.0.attention", 5, 5, ("source", "source"), heads=2, seed=1),
                    attention("head.blocks.0.cross_attention", 8, 5, ("target", "source"), heads=2, seed=2),
                ),
                tree=tuple(
                    TreeNode(label=label, parent=parent, step=step, word=word) for label, parent, step, word in nodes
                ),
            ),
        ),
    )


def places():
    pairs = tuple((2 * j, 2 * j + 1) for j in range(4))
    angles = tuple(10000 ** (-j / 4) for j in range(4))
    turning = PositionTable(
        name="source.positions", kind="sinusoidal", table=sinusoidal(20, 8), pairs=pairs, angles=angles
    )
    learned = PositionTable(name="target.positions", kind="learned", table=Positions("learned", 6, 10).table)
    return turning, learned, PositionTable(name="alibi", kind="alibi", table=[[0.5], [0.25]])


def history():
    return History(
        steps=(10, 20, 30),
        heads=tuple(
            HeadHistory(
                attention="decoder.0.cross_attention",
                head=head,
                measures={"entropy": (1.5, 1.0, 0.25 * head), "weight on the aligned": (0.1, 0.2, 0.3)},
            )
            for head in range(3)
        ),
    )


def small(**more):
    """Two sentences, so that one can be chosen."""
    plain = Sentence(
        source=Side(text=MARKUP, pieces=(MARKUP, "b", "\n")),
        attentions=(attention("blocks.0.attention", 3, 3, ("source", "source"), causal=True, seed=4),),
    )
    return Document(
        title=f"Where {MARKUP} looked",
        note=MARKUP,
        sentences=(sentence(), plain),
        positions=places(),
        history=history(),
        **more,
    )


def many_heads(heads=12):
    """Two layers of many heads; the page holds every third head of the second."""
    sides = ("source", "source")
    whole = attention("blocks.0.attention", 5, 5, sides, heads=heads)
    some = attention("blocks.1.attention", 5, 5, sides, heads=4, seed=1)
    text = Side(text="The animal slept", pieces=SOURCE)
    few = dataclasses.replace(some, heads=tuple(range(1, 12, 3)))
    return Document(title="Many heads", sentences=(Sentence(source=text, attentions=(whole, few)),))


@functools.cache
def long(tokens=1000, heads=4, layers=2):
    """One text of so many tokens. Even heads look a little back; odd ones look everywhere, which packs badly."""
    generator = torch.Generator().manual_seed(0)
    places = torch.arange(tokens)
    distance = (places[:, None] - places).float()
    maps = []
    for layer in range(layers):
        scores = torch.randn(heads, tokens, tokens, generator=generator)
        scores[::2] -= (distance - 3 * torch.arange(1, heads + 1, 2)[:, None, None]).abs() / (layer + 1)
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


def recurrence(name, steps, side, units=6, seed=0, backward=False):
    generator = torch.Generator().manual_seed(seed)
    parts = {letter: torch.rand(steps, units, generator=generator) for letter in "ifo"}
    parts |= {letter: 2 * torch.rand(steps, units, generator=generator) - 1 for letter in "ghc"}
    return Recurrence(
        name=name,
        steps=side,
        backward=backward,
        parts=tuple(Units(name=letter, values=values, gate=letter in "ifo") for letter, values in parts.items()),
    )


def recurrent():
    """A translation without attention: an encoder that reads both ways, one vector, and a decoder."""
    source, target = ("a", "b", "c", "d"), ("x", "y", "⟨end⟩")
    quoted = Feature(name="inside quotes", side="source", values=(0.0, 1.0, 1.0, 0.0))
    seen = recurrence("encoder.layers.0.cells.0", 4, "source", seed=1)
    planted = seen.parts[-1].values.clone()
    planted[:, 3] = 0.5 - torch.tensor(quoted.values)  # unit 3 of c tracks the quote
    parts = (*seen.parts[:-1], dataclasses.replace(seen.parts[-1], values=planted))
    return Document(
        title="Without attention",
        sentences=(
            Sentence(
                source=Side(text="a b c d", pieces=source),
                target=Side(text="x y", pieces=target),
                prefix=Side(text="x y", pieces=("⟨start⟩", "x", "y")),
                recurrences=(
                    dataclasses.replace(seen, parts=parts),
                    recurrence("encoder.layers.0.cells.1", 4, "source", seed=2, backward=True),
                    recurrence("decoder.layers.0.cells.0", 3, "prefix", units=8, seed=3),
                ),
                features=(quoted,),
                candidates=tuple((Candidate(piece=piece, probability=0.7),) for piece in target),
                decoding=Decoding(hidden=torch.randn(3, 8), summary=torch.randn(8)),
            ),
        ),
    )


@functools.cache
def long_recurrence(steps=1000, units=512):
    """One cell of many units over a long text."""
    pieces = tuple(f"w{place}" for place in range(steps))
    line = Feature(name="place in its line", side="source", values=tuple(float(place % 80) for place in range(steps)))
    return Document(
        title="Many units",
        sentences=(
            Sentence(
                source=Side(text=" ".join(pieces), pieces=pieces),
                recurrences=(recurrence("layers.0.cells.0", steps, "source", units=units),),
                features=(line,),
            ),
        ),
    )
