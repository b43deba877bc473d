import json

import numpy as np
import pytest
from numpy.testing import assert_allclose

from regard import config
from regard.errors import DataError
from regard.look.document import HeadHistory, History, to_mapping
from regard.look.position_tables import PositionTable, position_tables
from regard.models.transformer import Transformer, TransformerConfig
from regard.nn.positions import offset_rotation

SIZES = {"source_vocab_size": 9, "target_vocab_size": 9, "width": 8, "heads": 2, "feed_forward": 8, "max_len": 30}


def model(**settings):
    return Transformer(TransformerConfig(**SIZES, encoder_layers=1, decoder_layers=1, **settings))


@pytest.mark.parametrize("kind", ["sinusoidal", "learned", "linear", "rotary", "alibi", "relative"])
def test_a_model_shows_its_kind_of_positions(kind):
    places, *others = position_tables(model(positions=kind))
    assert len(others) == (1 if kind == "relative" else 0)  # a stack each
    assert places.kind == kind
    assert places.array().shape == {"rotary": (30, 4), "alibi": (2, 1), "relative": (2, 129)}.get(kind, (30, 8))
    assert bool(places.pairs) == (kind in ("sinusoidal", "rotary"))
    again = config.from_mapping(PositionTable, json.loads(json.dumps(to_mapping(places, packed=False))))
    assert to_mapping(again) == to_mapping(places)


def test_two_learned_tables_are_two_and_none_is_none():
    assert len(position_tables(model(positions="learned", share="output"))) == 2
    assert position_tables(model(positions="none")) == ()


@pytest.mark.parametrize("layout", ["interleaved", "halves"])
def test_pairs_turn_as_the_rotation_says(layout):
    (places,) = position_tables(model(position_layout=layout))
    table = places.array().astype(np.float64)
    columns = [column for pair in places.pairs for column in pair]
    turned = table[:-3, columns] @ offset_rotation(3, 8).double().numpy().T
    assert_allclose(turned, table[3:, columns], atol=1e-6)
    for (sine, cosine), angle in zip(places.pairs, places.angles, strict=True):
        assert_allclose(np.sin(2 * angle), table[2, sine], atol=1e-6)
        assert_allclose(np.cos(2 * angle), table[2, cosine], atol=1e-6)


def test_what_does_not_fit_is_refused():
    with pytest.raises(DataError, match="3 values of entropy of a head 0, but 2 steps"):
        History(steps=(1, 2), heads=(HeadHistory(attention="a", head=0, measures={"entropy": (1.0, 2.0, 3.0)}),))
    with pytest.raises(DataError, match="must be positions, features"):
        PositionTable(name="x", kind="learned", table=[1.0]).array()
    with pytest.raises(DataError, match="must each have an angle"):
        PositionTable(name="x", kind="rotary", table=[[1.0, 2.0]], pairs=((0, 2),), angles=(1.0,)).array()
