"""Attention as SVG and as matplotlib figures, and traces that show themselves."""

import re
import xml.etree.ElementTree as ElementTree
from importlib import resources

import numpy as np
import pytest
import torch

from regard.errors import ConfigError
from regard.look import watch
from regard.look.alignment import merge
from regard.look.attention_svg import check_view, colour, excerpt, svg
from regard.look.charts import DARK, DASHES, LIGHT
from regard.look.document import AttentionMap, Document, PatchedImage, Sentence, Side
from regard.look.figures import figure, write_png
from regard.look.packed_arrays import png_address, png_pixels
from regard.look.watch import trace_document
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
    with pytest.raises(ConfigError, match="no sentence 1"):
        svg(document, view="heads", sentence=1)
    with pytest.raises(ConfigError, match="view='maps' must be one of map"):
        svg(document, view="maps")
    with pytest.raises(ConfigError, match="must be one of map, columns, lines, heads"):
        figure(document, view="text")


@pytest.mark.parametrize("view", ["map", "columns", "lines", "heads", "text"])
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
    assert svg(document).count('stroke="#d55e00"') == 3 + 1  # and one in the legend


def many(heads):
    pieces = ("a", "b", "c")
    weights = torch.randn(heads, 3, 3, generator=torch.Generator().manual_seed(0)).softmax(-1)
    one = AttentionMap(name="x", kind="self", rows="source", columns="source", weights=weights)
    return Document(title="t", sentences=(Sentence(source=Side(text="a b c", pieces=pieces), attentions=(one,)),))


@pytest.mark.parametrize("heads", [12, 16, 32, 64])
def test_lines_of_every_head_look_unlike_and_the_legend_says_which_is_which(heads):
    root = ElementTree.fromstring(svg(many(heads), view="lines").encode())
    keys = [one for one in root.iter(f"{SPACE}path") if one.get("class") == "key"]
    looks = [(one.get("stroke"), one.get("stroke-dasharray")) for one in keys[:heads]]
    assert len(set(looks)) == heads
    drawn = {(one.get("stroke"), one.get("stroke-dasharray")) for one in root.iter(f"{SPACE}path")} - {
        ("#5a6878", None)
    }
    assert drawn <= set(looks)
    written = [text.text for text in root.iter(f"{SPACE}text")]
    assert [one for one in written if one.startswith("head ")] == [f"head {head}" for head in range(heads)]
    assert "lines below 0.04 are not shown" in written
    assert "heads 64 apart look alike" not in written
    for text in root.iter(f"{SPACE}text"):
        assert float(text.get("y")) < float(root.get("height"))
        start = float(text.get("x")) - (7 * len(text.text) if text.get("text-anchor") == "end" else 0)
        assert start >= 0
        assert start + 6.5 * len(text.text) <= float(root.get("width"))


def test_heads_that_look_the_same_are_said_to():
    assert "heads 64 apart look alike" in svg(many(65), view="lines")
    assert "heads 64 apart look alike" in many(65).figure(view="lines").legends[0].get_title().get_text()


@pytest.mark.parametrize("view", ["map", "heads", "text"])
def test_drawings_have_a_scale(document, view):
    root = ElementTree.fromstring(svg(document, view=view).encode())
    (bar,) = [one for one in root.iter(f"{SPACE}rect") if one.get("class") == "scale"]
    assert bar.get("fill") == "url(#weights)"
    stops = [stop.get("stop-color") for stop in root.iter(f"{SPACE}stop")]
    assert (stops[0], stops[-1]) == (colour(0.0), colour(1.0))
    written = [text.text for text in root.iter(f"{SPACE}text")]
    assert ("weight" if view == "heads" else "weight, mean of 2 heads") in written
    assert ("gold alignment" in written) == (view == "map")


def test_figures_have_legends(document):
    lines = many(12).figure(view="lines").legends[0]
    assert [text.get_text() for text in lines.get_texts()] == [
        *(f"head {head}" for head in range(12)),
        *("weight 0.1", "weight 0.5", "weight 1"),
    ]
    looks = [(line.get_color(), str(line.get_linestyle()), line._dash_pattern) for line in lines.get_lines()[:12]]
    assert len(set(map(str, looks))) == 12
    shown = document.figure(view="map")
    assert shown.axes[-1].get_ylabel() == "weight, mean of 2 heads"
    assert [text.get_text() for text in shown.legends[0].get_texts()] == ["gold alignment"]
    assert document.figure(view="map", attention="encoder.0", heads=[1]).legends == []
    assert document.figure(view="heads").axes[-1].get_ylabel() == "weight"


@pytest.mark.parametrize(("colours", "ground"), [(LIGHT, "#ffffff"), (DARK, "#12161d")])
def test_colours_of_heads_are_told_apart_by_the_colour_blind_too(colours, ground):
    """Distances in OKLab, as seen with no cones of one kind (Machado et al. 2009); 0.02 is about just noticeable."""
    to_lms = [[0.4122215, 0.5363325, 0.0514460], [0.2119035, 0.6806995, 0.1073970], [0.0883025, 0.2817188, 0.6299787]]
    to_lab = [
        [0.2104543, 0.7936178, -0.0040720],
        [1.9779985, -2.4285922, 0.4505937],
        [0.0259040, 0.7827718, -0.8086758],
    ]
    seen_as = {
        "all cones": np.eye(3),
        "protanopia": [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ],
        "deuteranopia": [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.01182, 0.04294, 0.968881],
        ],
        "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
    }

    def linear(one):
        shares = np.array([int(one[place : place + 2], 16) / 255 for place in (1, 3, 5)])
        return np.where(shares <= 0.04045, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4)

    lights = np.stack([linear(one) for one in colours])
    for kind, matrix in seen_as.items():
        lab = np.cbrt((lights @ np.array(matrix).T).clip(0, 1) @ np.array(to_lms).T) @ np.array(to_lab).T
        apart = np.linalg.norm(lab[:, None] - lab, axis=-1) + np.eye(8)
        assert apart.min() > 0.1, kind
    luminance = [float(one @ [0.2126, 0.7152, 0.0722]) + 0.05 for one in (*lights, linear(ground))]
    for one in luminance[:-1]:
        assert max(one, luminance[-1]) / min(one, luminance[-1]) >= 3  # WCAG: what a graphic needs


def test_the_page_has_the_colours_and_dashes_of_the_drawings():
    style = resources.files("regard.look").joinpath("viewer", "style.css").read_text(encoding="utf-8")
    assert tuple(re.findall(r"--head-\d: (#\w+);", style)) == LIGHT + DARK
    assert tuple(re.findall(r"\.dash-\d \{ --dash: ([\d ]+|none); \}", style)) == ("none", *DASHES[1:])


def test_a_thousand_tokens_go_in_as_one_image():
    pieces = tuple(map(str, range(1000)))
    weights = np.eye(1000)[None]
    one = AttentionMap(name="a", kind="self", rows="source", columns="source", weights=weights)
    long = Document(title="t", sentences=(Sentence(source=Side(text="", pieces=pieces), attentions=(one,)),))
    assert len(svg(long)) < 200_000
    assert svg(long).count("<image") == 1


@pytest.mark.parametrize("view", ["map", "columns", "lines", "heads"])
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


@pytest.fixture(scope="module")
def captioned():
    """An image of 2 x 3 patches after [CLS]; the first word looks at the last patch, the second at two alike."""
    pixels = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)
    weights = torch.tensor([[[0.5, 0, 0, 0, 0, 0, 0.5], [0.0, 0.4, 0.4, 0.2, 0, 0, 0]]])
    itself = torch.full((1, 7, 7), 1 / 7)
    sentence = Sentence(
        source=Side(text="a.png", pieces=("[CLS]", "1,1", "1,2", "1,3", "2,1", "2,2", "2,3")),
        target=Side.of("a ring", ["a", "ring"], [(0, 1), (2, 6)]),
        attentions=(
            AttentionMap(name="encoder.0", kind="self", rows="source", columns="source", weights=itself),
            AttentionMap(name="cross", kind="cross", rows="target", columns="source", weights=weights),
        ),
        picture=PatchedImage(image=png_address(pixels), width=6, height=4, rows=2, columns=3),
    )
    return Document(title="t", sentences=(sentence,))


def test_an_image_is_lit_once_for_each_word_where_its_step_looked(captioned):
    root = ElementTree.fromstring(svg(captioned, view="image"))
    images, texts = root.findall(f"{SPACE}image"), [one.text for one in root.iter(f"{SPACE}text")]
    assert len(images) == 2
    assert {"a", "ring"} <= set(texts)
    lit = [one for one in root.findall(f"{SPACE}rect") if one.get("fill-opacity")]
    first = [one for one in lit if float(one.get("x")) < float(images[1].get("x"))]
    # The one patch that was looked at most glows fully, whatever went to [CLS].
    assert [one.get("fill-opacity") for one in first] == ["0.820"]
    assert float(first[0].get("x")) == pytest.approx(float(images[0].get("x")) + 2 / 3 * 128)
    assert [one.get("fill-opacity") for one in lit[1:]] == ["0.820", "0.820", "0.410"]
    assert (
        len(ElementTree.fromstring(svg(captioned, view="image", attention="encoder.0")).findall(f"{SPACE}image")) == 1
    )


def test_an_image_is_written_as_png_and_read_again(captioned, tmp_path):
    picture = captioned.sentences[0].picture
    assert png_pixels(picture.image)[1, 2].tolist() == [24, 25, 26]
    pytest.importorskip("matplotlib")
    write_png(captioned, tmp_path / "lit.png", view="image")
    assert (tmp_path / "lit.png").read_bytes().startswith(b"\x89PNG")


def test_only_an_image_can_be_lit(document):
    with pytest.raises(ConfigError, match="view='image' lights an image"):
        svg(document, view="image")


def test_decoding_is_one_animation_whose_shades_are_the_weights_of_each_step(document):
    plot = ElementTree.fromstring(svg(document, view="decoding"))
    weights = document.sentences[0].attentions[0].array().mean(0)
    boxes = [one for one in plot.iter(f"{SPACE}rect") if one.find(f"{SPACE}animate[@attributeName='fill']") is not None]
    for column, box in enumerate(boxes):
        values = box.find(f"{SPACE}animate").get("values").split(";")
        steps = [colour(float(weight)) for weight in weights[:, column]]
        assert values == [*steps, steps[-1]]  # and one beat more with everything written
        assert box.get("fill") == steps[-1]
    assert len(boxes) == 5
    shown = [group.find(f"{SPACE}animate").get("values") for group in plot.iter(f"{SPACE}g")]
    assert shown == ["1;1;1;1", "0;1;1;1", "0;0;1;1"]
    with pytest.raises(ConfigError, match="must be one of map, columns, lines, heads, image"):
        check_view("decoding", as_svg=False)
