"""Pictures without a browser, and traces that show themselves."""

import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
import torch

from regard.errors import ConfigError
from regard.look import watch
from regard.look.align import merge
from regard.look.document import AttentionMap, Document, Sentence, Side
from regard.look.draw import colour, svg
from regard.look.excerpt import excerpt
from regard.look.figures import figure, write_png
from regard.look.notebook import trace_document
from regard.models.transformer import Transformer, TransformerConfig
from regard.nn.batch import Pairs, Tokens

HOSTILE = '<script>alert(1)</script> & "\ud800\x01$x$'
SPACE = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def document():
    generator = torch.Generator().manual_seed(0)
    source = Side.of("I am a student", ["I", "am", "a", "stud", "ent"], [(0, 1), (2, 4), (5, 6), (7, 11), (11, 14)])
    target = Side.of("je suis " + HOSTILE, ["je", "suis", HOSTILE], [(0, 2), (3, 7), (8, 40)])
    cross = torch.randn(2, 3, 5, generator=generator).softmax(-1)
    itself = torch.randn(2, 5, 5, generator=generator).softmax(-1)
    sentence = Sentence(
        source=source,
        target=target,
        attentions=(
            AttentionMap(
                name="decoder.0.cross", kind="cross", rows="target", columns="source", weights=cross, heads=(1, 5)
            ),
            AttentionMap(name="encoder.0", kind="self", rows="source", columns="source", weights=itself),
        ),
        alignment=((0, 0), (3, 1)),
    )
    return Document(title="t", sentences=(sentence,))


def test_an_excerpt_is_the_last_cross_attention_unless_said(document):
    shown = excerpt(document)
    weights = document.sentences[0].attentions[0].array()
    assert shown.title == "decoder.0.cross, all heads"
    assert shown.values == pytest.approx(weights)
    assert shown.gold == {(0, 0), (1, 3), (1, 4)}
    one = excerpt(document, heads=[5], words=True)
    assert one.title == "decoder.0.cross, head 5"
    sides = (document.sentences[0].source, document.sentences[0].target)
    sizes = {"sources": 4, "targets": len(sides[1].words)}
    assert one.values == pytest.approx(
        merge(torch.tensor(weights[1:]), *(side.word_of for side in sides), **sizes).numpy()
    )
    assert one.gold == {(0, 0), (1, 3)}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sentence": 1}, "no sentence 1"),
        ({"attention": "encoder.1"}, "did you mean 'encoder.0'"),
        ({"heads": [0]}, r"no head 0 of 'decoder.0.cross' is here: there are \[1, 5\]"),
        ({"heads": []}, "name at least one"),
    ],
)
def test_what_is_not_there_is_not_drawn(document, settings, message):
    with pytest.raises(ConfigError, match=message):
        excerpt(document, **settings)
    with pytest.raises(ConfigError, match="view='maps' must be one of map"):
        svg(document, view="maps")
    with pytest.raises(ConfigError, match="must be one of map, lines, heads"):
        figure(document, view="text")


@pytest.mark.parametrize("view", ["map", "lines", "heads", "text"])
def test_every_view_is_a_drawing_whose_text_is_text(document, view):
    root = ElementTree.fromstring(svg(document, view=view).encode())
    assert not root.findall(f".//{SPACE}script")
    written = ["".join(text.itertext()) for text in root.iter(f"{SPACE}text")]
    if view != "heads":
        assert '<script>alert(1)</script>·&·"��$x$' in written
        assert "stud" in written


def test_the_map_has_each_weight_and_each_gold_cell(document):
    weights = excerpt(document).mean
    root = ElementTree.fromstring(svg(document).encode())
    cells = [cell for cell in root.iter(f"{SPACE}rect") if cell.find(f"{SPACE}title") is not None]
    numbers = [cell.find(f"{SPACE}title").text.rpartition(" ")[2] for cell in cells]
    assert numbers == [f"{weight:.3f}" for weight in weights.flat]
    assert [cell.get("fill") for cell in cells] == [colour(weight) for weight in weights.flat]
    assert svg(document).count('stroke="#d55e00"') == 3


def test_a_thousand_tokens_go_in_as_one_image():
    pieces = tuple(map(str, range(1000)))
    weights = np.eye(1000)[None]
    one = AttentionMap(name="a", kind="self", rows="source", columns="source", weights=weights)
    long = Document(title="t", sentences=(Sentence(source=Side(text="", pieces=pieces), attentions=(one,)),))
    assert len(svg(long)) < 200_000
    assert svg(long).count("<image") == 1


@pytest.mark.parametrize("view", ["map", "lines", "heads"])
def test_figures_are_written(document, view, tmp_path):
    drawn = document.figure(view=view)
    write_png(document, tmp_path / "x.png", view=view)
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
    if view == "map":
        assert drawn.axes[0].images[0].get_array().data == pytest.approx(excerpt(document).mean)


def test_without_matplotlib_the_way_out_is_named(document, monkeypatch):
    monkeypatch.setattr("regard.look.figures.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="pip install 'regard\\[plots\\]'"):
        figure(document)


@pytest.fixture(scope="module")
def trace():
    torch.manual_seed(0)
    sizes = {"source_vocab_size": 9, "target_vocab_size": 9, "width": 8, "heads": 2, "feed_forward": 8}
    model = Transformer(TransformerConfig(**sizes, encoder_layers=1, decoder_layers=1)).eval()
    with torch.no_grad(), watch(model) as trace:
        model(Pairs(Tokens.of([[4, 5, 6]]), Tokens.of([[1, 7, 8, 2]])))
    return trace


def test_a_trace_shows_itself_in_a_notebook(trace):
    shown = trace._repr_html_()
    assert re.match(r'<iframe srcdoc="[^"]*" sandbox="allow-scripts allow-downloads"', shown)
    assert "cross_attention" in shown
    assert trace.figure(attention="encoder.0.attention", heads=[1]).axes[0].images
    document = trace_document(trace, source=["a", "b", "c"], target=["<s>", "x", "y"])
    assert document.sentences[0].source.text == "a b c"
    for one in document.sentences[0].attentions:
        assert one.array() == pytest.approx(trace.weights(one.name)[0].numpy())
    with pytest.raises(ConfigError, match="2 pieces of the source, but the model saw 3"):
        trace_document(trace, source=["a", "b"])
    with pytest.raises(ConfigError, match="no item 1"):
        trace_document(trace, item=1)


def test_a_trace_that_saw_nothing_says_so(trace):
    empty = type(trace)({"a": []})
    assert "Nothing was seen" in empty._repr_html_()
    with pytest.raises(ConfigError, match="no weights were seen"):
        trace_document(empty)
