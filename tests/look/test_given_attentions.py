"""`show` takes attention as people have it."""

import sys

import numpy as np
import pytest
import torch
import transformers

from regard.errors import ConfigError, DataError
from regard.look import Seen, Trace, show, watch
from regard.look import document as page_document
from regard.look.given_attentions import check_given
from regard.nn.attention import WITHIN

SOURCE, TARGET = ["the", "cat", "sat"], ["le", "chat"]


def weights(*shape):
    return torch.rand(shape, generator=torch.Generator().manual_seed(0)).softmax(-1)


def names(document):
    return [one.name for one in document.sentences[0].attentions]


@pytest.mark.parametrize(
    ("given", "layers", "heads"),
    [
        (weights(3, 3), 1, [1]),
        (weights(2, 3, 3).numpy(), 1, [2]),
        (weights(1, 2, 3, 3), 1, [2]),
        (weights(4, 1, 2, 3, 3), 4, [2] * 4),
        (weights(3, 3).tolist(), 1, [1]),
        ((weights(1, 2, 3, 3), weights(1, 5, 3, 3)), 2, [2, 5]),
        ([weights(3, 3).numpy(), weights(4, 3, 3).numpy()], 2, [1, 4]),
    ],
    ids=["one map", "heads", "batch", "layers", "lists", "tuple", "arrays"],
)
def test_arrays_of_any_rank_are_layers_of_heads(given, layers, heads):
    shown = show(given, SOURCE)
    assert names(shown) == [str(number) for number in range(layers)]
    assert [len(one.array()) for one in shown.sentences[0].attentions] == heads
    assert shown.sentences[0].source.pieces == tuple(SOURCE)
    assert "<iframe" in shown._repr_html_()


def test_item_is_a_sequence_of_the_batch():
    batch = weights(2, 1, 3, 3)
    assert np.allclose(show(batch, SOURCE, item=1).sentences[0].attentions[0].array(), batch[1], atol=1e-6)
    with pytest.raises(ConfigError, match="no item 2 in a batch of 2"):
        show(batch, SOURCE, item=2)


def t5():
    torch.manual_seed(0)
    sizes = {"vocab_size": 20, "d_model": 8, "d_kv": 4, "num_heads": 2, "num_layers": 2, "d_ff": 8}
    config = transformers.T5Config(**sizes, decoder_start_token_id=0, attn_implementation="eager")
    return transformers.T5ForConditionalGeneration(config).eval()


@torch.no_grad()
def test_an_output_of_an_encoder_and_a_decoder_and_a_page(tmp_path):
    model, given = t5(), {"input_ids": torch.tensor([[4, 5, 6]]), "decoder_input_ids": torch.tensor([[0, 7]])}
    outputs = model(**given, output_attentions=True)
    shown = show(outputs, SOURCE, TARGET)
    kinds = [(one.name, one.kind, one.rows, one.columns) for one in shown.sentences[0].attentions]
    assert kinds == [
        *((f"encoder.{layer}", "self", "source", "source") for layer in range(2)),
        *((f"decoder.{layer}", "self", "target", "prefix") for layer in range(2)),
        *((f"cross.{layer}", "cross", "target", "source") for layer in range(2)),
    ]
    parts = {"decoder": outputs.decoder_attentions, "cross": outputs.cross_attentions}
    apart = show(outputs.encoder_attentions, SOURCE, TARGET, **parts)
    assert apart.to_mapping() == shown.to_mapping()
    with watch(model) as trace:
        model(**given)
    assert len(show(trace, SOURCE, TARGET).sentences[0].attentions) == 6
    page = shown.save(tmp_path / "attention.html")
    assert "chat" in page.read_text(encoding="utf-8")


@torch.no_grad()
def test_what_does_not_fit_a_page_is_left_out_and_said(monkeypatch):
    monkeypatch.setattr(page_document, "MOST_WEIGHTS", 2 * 4 * 3 * 3)
    heads = np.full((4, 3, 3), 1 / 3)
    found = show([heads, heads, heads])
    assert [one.name for one in found.sentences[0].attentions] == ["1", "2"]
    assert found.note == "The page holds the last 2 attentions; 1 more did not fit. Give them alone to see them."
    assert show([heads, heads]).note == ""
    trace = Trace({name: [Seen(torch.tensor(heads)[None])] for name in "abc"}, dict.fromkeys("abc", WITHIN))
    assert show(trace).note == found.note
    monkeypatch.setattr(sys.modules["regard.look.watch"], "MOST_NUMBERS", 5)  # its function has the same name
    vectors = torch.zeros(1, 2, 3, 1)
    full = Trace({"a": [Seen(weights(1, 2, 3, 3), vectors, vectors, vectors)]}, {"a": WITHIN})
    assert show(full).sentences[0].attentions[0].neurons is None
    assert show(full).note == "18 numbers of q, k and v are more than a page holds: watch fewer."
    with pytest.raises(DataError, match="'0' alone has 81 weights; a page holds 72"):
        show(np.full((9, 3, 3), 1 / 3))


def test_what_generate_returns_is_joined_step_by_step():
    outputs = t5().generate(
        torch.tensor([[4, 5, 6]]),
        max_new_tokens=3,
        min_new_tokens=3,
        do_sample=False,
        output_attentions=True,
        return_dict_in_generate=True,
    )
    shown = show(outputs, SOURCE).sentences[0].attentions
    assert [one.array().shape for one in shown] == [(2, 3, 3)] * 6
    assert np.triu(shown[2].array(), 1).max() == 0  # the decoder's first layer: nothing later is seen


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"attentions": weights(3, 3), "tokens": "the cat sat"}, "list of pieces"),
        ({"attentions": weights(3, 3), "tokens": ["the"]}, "1 pieces of the source, but .* 3"),
        ({"attentions": (weights(3, 3), weights(2, 3))}, "cross="),
        ({"attentions": (None, None)}, "eager"),
        ({"attentions": ()}, "output_attentions=True"),
        ({"attentions": torch.zeros(3)}, "shape"),
        ({"attentions": 3 * weights(3, 3)}, "must be 0 to 1"),
        ({"attentions": [[0.5, 0.5], [1.0]]}, "'attentions' is no table of weights but list"),
        ({"attentions": {"text": "the cat"}}, "'text' is no table of weights but str"),
        ({"attentions": torch.nn.Linear(2, 2)}, r"inside regard\.watch"),
        ({"attentions": ((weights(1, 1), weights(1, 1)), (weights(1, 2),))}, r"steps of \[1, 2\] layers"),
    ],
)
def test_what_cannot_be_shown_is_refused_with_what_to_do(given, said):
    with pytest.raises((ConfigError, DataError), match=said):
        show(**given)


def test_ids_in_the_place_of_pieces_and_an_item_that_is_no_number_are_refused():
    with pytest.raises(ConfigError, match=r"tokens=\[4, 5, 6\] must be texts.*convert_ids_to_tokens"):
        check_given(weights(3, 3), {"tokens": [4, 5, 6]}, 0)
    with pytest.raises(ConfigError, match="item='0' must be a whole number"):
        check_given(weights(3, 3), {"tokens": None}, "0")
