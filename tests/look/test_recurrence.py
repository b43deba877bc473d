"""Gates and states of every recurrent cell as watched, against the equations stepped through one position at a time."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import regard
from regard.cli import main
from regard.errors import ConfigError, DataError
from regard.look import recurrences, show, text_features, tracking, watch
from regard.look.attention_svg import svg
from regard.look.document import Document, Recurrence, Sentence, Side, Units
from regard.models.lstmn import LSTMN, LSTMNConfig
from regard.models.recurrent import RecurrentConfig, RecurrentModel
from regard.models.recurrent_language import RecurrentLanguageConfig, RecurrentLanguageModel
from regard.models.rwkv import RWKV, RWKVConfig
from regard.nn.batch import Pairs, Tokens
from regard.nn.recurrent.cells import CELLS
from regard.nn.recurrent.layers import RecurrentLayer
from regard.tasks.looking import LookOptions, document, load_at, look_options

GATES = {
    "rnn": set(),
    "lstm": {"i", "f", "o", "g"},
    "gru-before": {"r", "z"},
    "gru-after": {"r", "z"},
    "mut1": {"r", "z"},
    "mut2": {"r", "z"},
    "mut3": {"r", "z"},
}


def stepped(cell, x, state):
    """Gates before and states after every position, by the cell's own step."""
    gates, states = [], []
    for here in cell.project(x).unbind(1):
        gates.append(cell.gate_values(here, state[0]))
        state = cell.advance(here, state)
        states.append(state)
    return gates, states


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("direction", ["forward", "backward", "both"])
def test_gates_and_states_of_every_cell_are_those_of_its_steps(kind, direction):
    torch.manual_seed(0)
    layer = RecurrentLayer(kind, 3, 8, direction=direction)
    x, lengths = torch.randn(2, 5, 3), torch.tensor([5, 3])
    with torch.no_grad():
        alone, _ = layer(x, lengths)
        with watch(layer, parts=("gates", "states")) as trace:
            outputs, _ = layer(x, lengths)
    assert torch.equal(outputs, alone)  # what is watched computes the same
    assert list(trace.cells) == list(recurrences(layer)) == [f"cells.{n}" for n in range(len(layer.cells))]
    for number, (name, cell) in enumerate(recurrences(layer).items()):
        backward = number == 1 or direction == "backward"
        for row, length in enumerate(lengths.tolist()):
            own = x[row : row + 1, :length]
            start = tuple(torch.zeros(1, layer.width // len(layer.cells)) for _ in range(layer.parts))
            gates, states = stepped(cell, own.flip(1) if backward else own, start)
            if backward:
                gates, states = gates[::-1], states[::-1]
            found = trace.states(name)
            assert set(found) == ({"h", "c"} if kind == "lstm" else {"h"})
            for part, letter in enumerate(found):
                assert_close(found[letter][row, :length], torch.cat([state[part] for state in states]))
            if GATES[kind]:
                seen = trace.gates(name)
                assert set(seen) == GATES[kind]
                for letter in seen:
                    assert_close(seen[letter][row, :length], torch.cat([one[letter] for one in gates]))
    assert all(cell.state_watcher is None for cell in layer.cells)


def test_the_product_of_forget_gates_is_the_direct_path_of_the_gradient_of_the_cell():
    torch.manual_seed(0)
    layer = RecurrentLayer("lstm", 3, 4)
    x, (cell,) = torch.randn(1, 6, 3), layer.cells
    with watch(layer, parts="gates") as trace:
        layer(x)
    first = torch.randn(1, 4, requires_grad=True)
    with torch.no_grad():
        outputs, _ = layer(x)
    c, before = first, torch.zeros(1, 4)
    for step in range(6):
        # The direct path is that through the cell alone: what the gates make of the output before is held fixed.
        _, c = cell.advance(cell.project(x[:, step]), (before, c))
        before = outputs[:, step]
    (gradient,) = torch.autograd.grad(c.sum(), first)
    assert_close(gradient, trace.gates("cells.0")["f"].prod(1))
    assert not torch.allclose(gradient, trace.gates("cells.0")["i"].prod(1))


@pytest.mark.parametrize("attention", ["none", "additive", "general"])
def test_a_decoder_is_seen_step_by_step_even_where_an_edit_makes_it_go_again(attention):
    torch.manual_seed(0)
    config = RecurrentConfig(
        source_vocab_size=9, target_vocab_size=9, width=4, attention=attention, encoder_layers=1, decoder_layers=1
    )
    model = RecurrentModel(config).eval()
    batch = Pairs(Tokens.of([[3, 4, 5]]), Tokens.of([[1, 3, 4, 5, 2]]))
    with torch.no_grad(), watch(model, parts=("gates", "states")) as trace:
        model(batch)
    decoder = [name for name, side in trace.reads.items() if side == "prefix"]
    encoder = [name for name, side in trace.reads.items() if side == "source"]
    assert decoder
    assert encoder
    assert all(trace.states(name)["h"].shape[1] == 4 for name in decoder)
    assert all(trace.states(name)["h"].shape[1] == 3 for name in encoder)
    if attention == "none":
        return

    def evenly(name, weights):
        return torch.full_like(weights, 1 / weights.shape[-1])

    with torch.no_grad(), watch(model, parts=("weights", "states"), edit=evenly) as edited:
        model(batch)
    assert all(edited.states(name)["h"].shape[1] == 4 for name in decoder)
    if attention == "additive":  # whose context goes into the step
        assert not torch.equal(edited.states(decoder[0])["h"], trace.states(decoder[0])["h"])


def test_lstmns_memory_is_the_mean_of_its_tape():
    torch.manual_seed(0)
    model = LSTMN(LSTMNConfig(vocab_size=9, width=4, layers=1)).eval()
    with torch.no_grad(), watch(model, parts=("weights", "gates", "states")) as trace:
        model.read(Tokens.of([[3, 4, 5, 6]]))
    weights = trace.weights("layers.0.attention")[:, 0]
    gates, states = trace.gates("layers.0"), trace.states("layers.0")
    assert_close(states["m"], weights @ states["h"])
    assert_close(states["n"], weights @ states["c"])
    assert_close(states["c"], gates["f"] * states["n"] + gates["i"] * gates["g"])
    assert_close(states["h"], gates["o"] * states["c"].tanh())


def test_rwkvs_decays_say_what_is_kept():
    torch.manual_seed(0)
    model = RWKV(RWKVConfig(vocab_size=9, width=4, layers=2, feed_forward=8)).eval()
    with torch.no_grad(), watch(model, parts=("gates", "states")) as trace:
        model.read(Tokens.of([[3, 4, 5, 6]]))
    time = model.blocks[0].time
    gates = trace.gates("blocks.0.time")
    assert_close(gates["decay"][0, 2], (-time.decay.exp()).exp().detach())
    assert_close(gates["kept"][:, 0], torch.zeros(1, 4))  # before the first position nothing was read
    assert bool((gates["kept"][:, 1:, :3] > 0).all())  # the last channel forgets at once
    with torch.no_grad(), watch(model, parts=("gates", "states")) as slowly:
        state = model.start(Tokens.of([[3]]))
        for token in (3, 4, 5, 6):
            _, state = model.step(torch.tensor([token]), state)
    assert_close(slowly.gates("blocks.0.time")["kept"], gates["kept"])
    assert_close(slowly.states("blocks.1.time")["mean"], trace.states("blocks.1.time")["mean"])


def test_units_are_found_by_what_they_track():
    text = 'he said "go (now)" and left\nthe end'
    spans = [(place, place + 1) for place in range(len(text))]
    features = {one.name: one.values for one in text_features(text, spans, patterns={"vowel": "[aeiou]"})}
    assert list(features) == ["inside quotes", "open brackets", "place in its line", "vowel", "place in the text"]
    assert [text[p] for p, inside in enumerate(features["inside quotes"]) if inside] == list('"go (now)')
    assert features["place in its line"][text.index("\n")] == 0
    assert sum(features["vowel"]) == sum(letter in "aeiou" for letter in text)
    generator = np.random.default_rng(0)
    units = generator.normal(size=(len(text), 6))
    units[:, 4] = 0.3 - 2 * np.array(features["inside quotes"])
    units[:, 2] = 1.0
    found = tracking(units, features["inside quotes"])
    assert found[4] == pytest.approx(-1)
    assert found[2] == 0
    others = [place for place in range(6) if place not in (2, 4)]
    expected = [np.corrcoef(units[:, place], features["inside quotes"])[0, 1] for place in others]
    assert found[others] == pytest.approx(expected)
    with pytest.raises(ConfigError, match="no regular expression"):
        text_features(text, spans, patterns={"broken": "("})
    with pytest.raises(DataError, match="steps, units"):
        tracking(units, [1.0])


def test_a_trace_of_a_recurrence_is_a_document_that_survives_json():
    model = RecurrentLanguageModel(RecurrentLanguageConfig(vocab_size=9, width=4, layers=2)).eval()
    with torch.no_grad(), regard.watch(model, parts=("gates", "states")) as trace:
        model.read(Tokens.of([[3, 4, 5]]))
    made = show(trace, ["a", "b", "c"])
    back = Document.from_mapping(made.to_mapping()).sentences[0].recurrences
    assert [cell.name for cell in back] == ["layers.layers.0.cells.0", "layers.layers.1.cells.0"]
    assert [part.name for part in back[0].parts] == ["i", "f", "o", "g", "h", "c"]
    assert [part.gate for part in back[0].parts] == [True, True, True, False, False, False]
    for part in back[1].parts:
        found = {**trace.gates(back[1].name), **trace.states(back[1].name)}[part.name][0]
        assert part.array() == pytest.approx(found.numpy(), abs=1e-4)
    plain = made.to_mapping(packed=False)["sentences"][0]["recurrences"][0]["parts"][0]["values"]
    assert np.shape(plain) == (3, 4)
    assert trace._repr_html_().startswith("<iframe")


def by_hand(module, suffix, x, h, c=None):
    """Gates and states of one direction of one of torch's layers, by torch's documented equations, step by step."""
    weights = [getattr(module, f"{name}_{of}{suffix}") for of in ("ih", "hh") for name in ("weight", "bias")]
    gates, states = [], []
    for here in x:
        ours, theirs = weights[0] @ here + weights[1], weights[2] @ h + weights[3]
        if isinstance(module, torch.nn.LSTM):
            i, f, g, o = (ours + theirs).chunk(4)
            gates.append({"i": i.sigmoid(), "f": f.sigmoid(), "o": o.sigmoid(), "g": g.tanh()})
            c = gates[-1]["f"] * c + gates[-1]["i"] * gates[-1]["g"]
            h = gates[-1]["o"] * c.tanh()
            states.append({"h": h, "c": c})
        elif isinstance(module, torch.nn.GRU):
            (r_x, z_x, n_x), (r_h, z_h, n_h) = ours.chunk(3), theirs.chunk(3)
            gates.append({"r": (r_x + r_h).sigmoid(), "z": (z_x + z_h).sigmoid()})
            h = gates[-1]["z"] * h + (1 - gates[-1]["z"]) * torch.tanh(n_x + gates[-1]["r"] * n_h)
            states.append({"h": h})
        else:
            gates.append({})
            h = torch.tanh(ours + theirs)
            states.append({"h": h})
    return ({name: torch.stack([one[name] for one in found]) for name in found[0]} for found in (gates, states))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
@torch.no_grad()
def test_torchs_own_recurrences_are_watched_in_every_layer_and_direction(kind, packed):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 5), kind(5, 4, num_layers=2, bidirectional=True)).eval()
    module, lengths = model[1], [2, 6, 5] if packed else [6, 6, 6]
    x = model[0](torch.randn(6, 3, 3))
    start = [torch.randn(4, 3, 4) for _ in range(2 if kind is torch.nn.LSTM else 1)]
    given = torch.nn.utils.rnn.pack_padded_sequence(x, torch.tensor(lengths), enforce_sorted=False) if packed else x
    hx = tuple(start) if len(start) == 2 else start[0]
    plain, luck = module(given, hx)[0], torch.get_rng_state()
    with watch(model, parts=("gates", "states")) as trace:
        watched = module(given, hx)[0]
    assert torch.equal(luck, torch.get_rng_state())
    assert torch.equal(watched.data if packed else watched, plain.data if packed else plain)
    assert list(trace.cells) == ["1.l0", "1.l0_reverse", "1.l1", "1.l1_reverse"]
    assert trace.backward == {"1.l0_reverse", "1.l1_reverse"}
    top = torch.nn.utils.rnn.pad_packed_sequence(watched)[0] if packed else watched
    for row, length in enumerate(lengths):
        below = x[:length, row]
        for layer in range(2):
            outputs = []
            for way, suffix in enumerate((f"l{layer}", f"l{layer}_reverse")):
                read = below.flip(0) if way else below
                begun = [part[2 * layer + way, row] for part in start]
                gates, states = by_hand(module, f"_{suffix}", read, *begun)
                for seen, expected in (
                    (trace.states(f"1.{suffix}"), states),
                    (gates and trace.gates(f"1.{suffix}"), gates),
                ):
                    assert set(seen) == set(expected)
                    for name, values in expected.items():
                        assert_close(seen[name][row, :length], values.flip(0) if way else values, atol=1e-5, rtol=1e-5)
                outputs.append(trace.states(f"1.{suffix}")["h"][row, :length])
            below = torch.cat(outputs, dim=-1)
        assert_close(below, top[:length, row], atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_a_torch_cell_that_is_stepped_is_joined_over_time_and_nothing_stays_behind():
    cell, x = torch.nn.LSTMCell(3, 4), torch.randn(5, 2, 3)
    state, seen = None, []
    with watch(torch.nn.ModuleDict({"cell": cell}), parts=("gates", "states")) as trace:
        for here in x:
            state = cell(here, state)
            seen.append(state[1])
    assert_close(trace.states("cell")["c"], torch.stack(seen, 1))
    assert trace.gates("cell")["f"].shape == (2, 5, 4)
    assert not cell._forward_hooks
    assert not [name for name in vars(cell) if name.startswith("_regard")]
    page = show(trace, ["a", "b", "c", "d", "e"])
    assert [part.name for part in page.sentences[0].recurrences[0].parts] == ["i", "f", "o", "g", "h", "c"]


@pytest.mark.parametrize(
    ("module", "said"),
    [
        (torch.nn.LSTM(3, 4, proj_size=2), "with proj_size=2 cannot be watched"),
        (torch.nn.RNN(3, 4, nonlinearity="relu"), "nonlinearity='relu' cannot be watched"),
    ],
)
def test_a_recurrence_of_torch_that_we_have_no_equations_for_is_refused(module, said):
    with pytest.raises(ConfigError, match=said), watch(module, parts="states"):
        pass
    assert not module._forward_hooks


def test_dropout_between_torchs_layers_is_refused_in_training_alone():
    module = torch.nn.GRU(3, 4, num_layers=2, dropout=0.5)
    with pytest.raises(ConfigError, match="call eval"), watch(module, parts="states"):
        module(torch.randn(2, 1, 3))
    with watch(module.eval(), parts="states") as trace:
        module(torch.randn(2, 1, 3))
    assert trace.states("l1")["h"].shape == (1, 2, 4)


def test_what_cannot_be_watched_or_shown_is_refused():
    model = RecurrentLanguageModel(RecurrentLanguageConfig(vocab_size=9, width=4, layers=1))
    with (
        pytest.raises(ConfigError, match=r"no attention to watch: it is recurrent, so watch parts=\('gates'"),
        watch(model),
    ):
        pass
    with (
        pytest.raises(ConfigError, match="no recurrence to watch: it has attention"),
        watch(torch.nn.MultiheadAttention(4, 2), parts="gates"),
    ):
        pass
    with (
        pytest.raises(ConfigError, match="no attention or cell is called 'nothing'"),
        watch(model, "nothing", parts="gates"),
    ):
        pass
    with (
        pytest.raises(ConfigError, match="edit= changes attention weights"),
        watch(model, parts="gates", edit=lambda name, weights: weights),
    ):
        pass
    with watch(model, parts="gates") as trace:
        model.read(Tokens.of([[3, 4]]))
        model.read(Tokens.of([[3, 4], [4, 5]]))
    with pytest.raises(ConfigError, match="no states were seen"):
        trace.states("layers.layers.0.cells.0")
    with pytest.raises(ConfigError, match=r"had \[1, 2\] rows"):
        trace.gates("layers.layers.0.cells.0")
    side = Side(text="a b", pieces=("a", "b"))
    short = Recurrence(name="cell", steps="source", parts=(Units(name="h", values=[[0.0]]),))
    with pytest.raises(DataError, match="must be one, of 2 steps"):
        Sentence(source=side, recurrences=(short,))


RUNS = Path(__file__).parents[1] / "compatibility" / "runs_0_1_0"


def test_a_run_without_attention_is_looked_into_with_its_summary_and_features():
    run = regard.load(RUNS / "sutskever", "cpu")
    (seen,) = document(run, ['the "cat'], LookOptions(features={"t": "t"})).sentences
    assert seen.attentions == ()
    sides = {cell.name: cell.steps for cell in seen.recurrences}
    assert set(sides.values()) == {"source", "prefix"}
    assert {(one.name, one.side) for one in seen.features} >= {("inside quotes", "source"), ("t", "source")}
    top = [cell for cell in seen.recurrences if cell.steps == "source" and cell.name.startswith("encoder")][-1]
    state = next(part for part in top.parts if part.name == "h").array()
    summary = seen.decoding.arrays()["summary"]
    # What the decoder starts from is the encoder's state after the last piece, or backward the first.
    assert summary[-state.shape[1] :] == pytest.approx(state[0 if top.backward else -1], abs=1e-3)
    with pytest.raises(ConfigError, match="no heads to choose, to change or to measure"):
        document(run, ["the cat"], LookOptions(edits=True))
    with pytest.raises(ConfigError, match="no attention to plot"):
        svg(document(run, ["the cat"]))


def test_a_feature_that_no_unit_can_go_with_is_said():
    lstm, gpt = (regard.load(RUNS / name, "cpu") for name in ("lstm-carried", "gpt"))
    found = document(lstm, ["the cat"], LookOptions(features={"vowel": "[aeiou]", "digit": "[0-9]"}))
    assert found.note == "No unit can go with digit: of these texts it matches nothing, or all."
    assert document(lstm, ["the cat"], LookOptions(features={"vowel": "[aeiou]"})).note == ""
    with pytest.raises(ConfigError, match="features are for the units of a recurrence"):
        document(gpt, ["the cat"], LookOptions(features={"vowel": "[aeiou]"}))


def test_what_does_not_fit_a_page_is_said(monkeypatch):
    run = regard.load(RUNS / "lstm-carried", "cpu")
    (whole,) = document(run, ["the cat"]).sentences
    assert len(whole.recurrences) > 1
    steps, units = whole.recurrences[0].parts[0].array().shape
    monkeypatch.setattr(look_options, "MOST_STATES", 6 * steps * units)
    found = document(run, ["the cat"])
    assert [cell.name for cell in found.sentences[0].recurrences] == [whole.recurrences[-1].name]
    assert "the gates and states of the last 1 cells" in found.note
    monkeypatch.setattr(look_options, "MOST_STATES", 0)
    with pytest.raises(ConfigError, match="do not fit a page"):
        document(run, ["the cat"])


@torch.no_grad()
def test_a_model_that_reads_both_ways_is_shown_in_both_directions():
    run = regard.load(RUNS / "elmo", "cpu")
    (sentence,) = document(run, ["the cat sees a dog"]).sentences
    cells = {one.name: one for one in sentence.recurrences}
    assert set(cells) == set(recurrences(run.model))
    assert {one.name for one in cells.values() if one.backward} == {name for name in cells if name.startswith("back")}
    words = run.model.embedding(torch.tensor([run.generator.prompt_ids("the cat sees a dog")]))
    for way in ("onward", "back"):
        read = words.flip(1) if way == "back" else words
        for number, layer in enumerate(getattr(run.model, way).layers):
            _, states = stepped(layer.cells[0], read, layer.zeros(read))
            read = torch.stack([one[0] for one in states], dim=1)
            shown = next(one for one in cells[f"{way}.layers.{number}.cells.0"].parts if one.name == "h").array()
            assert_close(torch.tensor(shown), (read.flip(1) if way == "back" else read)[0], atol=1e-5, rtol=1e-4)
        if way == "onward":
            ahead = run.model.head(read)[0].softmax(-1).amax(-1)
    likely = [max(choice.probability for choice in one) for one in sentence.candidates]
    assert_close(torch.tensor(likely), ahead, atol=1e-4, rtol=0)
    assert set(sentence.scores) == {"perplexity", "perplexity, read backward"}


def test_a_checkpoint_is_looked_into_by_its_path():
    run, name = load_at(RUNS / "gpt" / "checkpoints" / "step-150", "cpu")
    assert name == "gpt at step 150"
    last, plain = load_at(RUNS / "gpt", "cpu")
    assert plain == "gpt"
    early, late = (document(one, ["the cat"]).sentences[0].attentions[0].array() for one in (run, last))
    assert not np.allclose(early, late, atol=1e-4)


def test_the_command_puts_a_checkpoint_beside_a_run_and_looks_for_what_is_named(tmp_path, capsys):
    gpt, lstm = RUNS / "gpt", RUNS / "lstm-carried"
    out = tmp_path / "two.html"
    command = ["look", str(gpt / "checkpoints" / "step-150"), "the cat", "--device", "cpu", "--out", str(out)]
    assert main([*command, "--beside", str(gpt)]) == 0
    page = out.read_text(encoding="utf-8")
    assert page.count("<iframe") == 2
    assert "Where gpt at step 150 looked beside Where gpt looked" in page
    assert main([*command, "--beside", str(gpt), "--json", str(tmp_path / "x.json")]) == 2
    assert "--beside makes a page" in capsys.readouterr().err
    told = ["look", str(lstm), "the cat", "--device", "cpu", "--json", str(tmp_path / "lstm.json")]
    assert main([*told, "--feature", "vowel=[aeiou]"]) == 0
    (seen,) = json.loads((tmp_path / "lstm.json").read_text(encoding="utf-8"))["sentences"]
    assert "vowel" in {one["name"] for one in seen["features"]}
    assert {part["name"] for part in seen["recurrences"][0]["parts"]} == set("ifoghc")
    assert main([*told, "--feature", "vowel"]) == 2
    assert "must be NAME=PATTERN" in capsys.readouterr().err
