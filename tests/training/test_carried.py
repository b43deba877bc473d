"""Carried states: windows one after the other are as one long text, whatever stops or splits them."""

from types import SimpleNamespace

import pytest
import torch
from torch.testing import assert_close

from regard.errors import RunError
from regard.models.recurrent_language import RecurrentLanguageConfig, RecurrentLanguageModel
from regard.nn.batch import StreamedWindows, Tokens, halves
from regard.training.objectives import LanguageModelling, StreamedLanguageModelling


def model(**changes):
    torch.manual_seed(0)
    return RecurrentLanguageModel(RecurrentLanguageConfig(vocab_size=17, width=6, dropout=0.0, **changes)).train()


IDS = torch.randint(4, 17, (3, 13), generator=torch.Generator().manual_seed(0))


def stretch(begin, end, number):
    ids, labels = IDS[:, begin:end], IDS[:, begin + 1 : end + 1]
    inputs = Tokens(ids, torch.full((3,), ids.shape[1]), padded=False)
    return StreamedWindows(inputs, labels, labels.numel(), torch.arange(3), streams=3, number=number)


@pytest.mark.parametrize("cell", ["lstm", "gru-before"])
def test_windows_with_a_carried_state_lose_what_the_whole_text_loses(cell):
    one, task = model(cell=cell), StreamedLanguageModelling()
    whole = LanguageModelling().loss(one, stretch(0, 12, 0)).total
    for _ in range(2):  # an epoch begins from zeros, whatever was read before it
        parts = [task.loss(one, stretch(4 * number, 4 * number + 4, number)).total for number in range(3)]
        assert_close(sum(parts), whole)
    apart = sum(
        LanguageModelling().loss(one, stretch(4 * number, 4 * number + 4, 0)).total.detach() for number in range(3)
    )
    assert abs(float(apart - whole.detach())) > 1e-3


def test_a_gradient_ends_at_the_start_of_its_window():
    one, task = model(), StreamedLanguageModelling()
    task.loss(one, stretch(0, 4, 0))
    before = [part.clone() for state in task._trained.after for part in state]
    task.loss(one, stretch(4, 8, 1)).total.backward()
    assert not any(part.requires_grad for part in before)
    gradient = one.embedding.tokens.weight.grad
    tied = model(tied=False)
    task = StreamedLanguageModelling()
    task.loss(tied, stretch(0, 4, 0))
    task.loss(tied, stretch(4, 8, 1)).total.backward()
    read = set(IDS[:, 4:8].flatten().tolist())
    touched = {int(row) for row in tied.embedding.tokens.weight.grad.abs().sum(1).nonzero()}
    assert touched == read
    assert gradient is not None


def test_a_batch_that_comes_again_in_halves_starts_where_it_did():
    one = model()
    task, split = StreamedLanguageModelling(), StreamedLanguageModelling()
    for number in range(3):
        batch = stretch(4 * number, 4 * number + 4, number)
        whole = task.loss(one, batch).total
        split.loss(one, batch)  # did not fit: its loss is thrown away
        assert_close(sum(split.loss(one, half).total for half in halves(batch)), whole)
    assert_close(split.tensors(), task.tensors())


def test_a_batch_may_come_in_halves_from_the_first():
    one, task, split = model(), StreamedLanguageModelling(), StreamedLanguageModelling()
    for number in range(2):
        batch = stretch(4 * number, 4 * number + 4, number)
        whole = task.loss(one, batch).total
        assert_close(sum(split.loss(one, half).total for half in halves(batch)), whole)
        assert_close(split.tensors(), task.tensors())


def test_states_that_were_put_back_go_to_where_the_batch_is_even_in_halves():
    class Last(torch.nn.Module):
        """Carries the last token that it has read."""

        head = SimpleNamespace(loss=lambda x, labels, smoothing: (x.sum(), x.sum()))

        def carry(self, inputs, states):
            x = inputs.ids[..., None].float()
            assert states is None or states[0][0].device == x.device
            return x, ((x[:, -1],),)

    task, again = StreamedLanguageModelling(), StreamedLanguageModelling()
    task.loss(Last(), stretch(0, 4, 0))
    again.restore(task.tensors())
    for half in halves(stretch(4, 8, 1)):
        again.loss(Last(), half.to("meta"))
    assert again.tensors()["0.0"].device.type == "meta"
    assert again.tensors()["0.0"].shape == (3, 1)


def test_validation_does_not_disturb_what_training_carries():
    one, task = model(), StreamedLanguageModelling()
    task.loss(one, stretch(0, 4, 0))
    kept = task.tensors()
    task.loss(one.eval(), stretch(0, 4, 0))
    task.loss(one.eval(), stretch(4, 8, 1))
    assert task.tensors().keys() == kept.keys() == {"0.0", "0.1", "1.0", "1.1"}
    assert all(task.tensors()[name] is kept[name] for name in kept)


def test_a_task_that_is_restored_goes_on():
    one, task, again = model(), StreamedLanguageModelling(), StreamedLanguageModelling()
    task.loss(one, stretch(0, 4, 0))
    batch = stretch(4, 8, 1)
    again.loss(one, batch)  # whatever it has read before
    again.restore(task.tensors())
    assert torch.equal(again.loss(one, batch).total, task.loss(one, batch).total)
    for name in ("layer", "1", "1.", ".1", "1.x", "x.1"):
        with pytest.raises(RunError, match="not the name of a carried state"):
            again.restore({name: torch.zeros(1)})


def test_all_the_ways_to_drop_act_in_training_alone_and_never_within_a_row():
    one = model(variational=True, token_dropout=0.3, weight_drop=0.5, layer_dropout=0.4)
    one.embedding.dropout.p = one.dropout.p = 0.5
    batch = stretch(0, 12, 0)
    torch.manual_seed(1)
    vectors = one(batch)
    zeros = vectors[:, 5:] == 0  # before that, tokens that are dropped may have left nothing at all
    assert zeros.any()
    assert torch.equal(zeros.all(1), zeros.any(1))  # the same features at every position
    torch.manual_seed(1)
    assert torch.equal(one(batch), vectors)
    assert not torch.equal(one(batch), vectors)
    one.eval()
    assert torch.equal(one(batch), one(batch))
    assert all(part.dropped is None for part in one.modules() if hasattr(part, "dropped"))
