"""Training in several processes gives what one gives: losses, gradients and weights of every update."""

import pytest
import torch
from process_toys import KINDS, QUICK, alone, apart, as_type, group, prepared, together, updates, write_files

from regard.data import Position
from regard.data.sharing import Idle, Share, share
from regard.nn.batch import StreamedWindows
from regard.tasks.run import build_model
from regard.training.loop import seed_step

pytestmark = pytest.mark.skipif(
    torch.cuda.is_available(), reason="torch's autograd cannot be forked once it has threads for a GPU"
)

MODES = ["copies", "shards"]


def trained(rank, world, made, steps, dtype, modes):
    """What every kind gives in these processes, by kind and mode."""
    found = {}
    for kind, (config, data) in made.items():
        for mode in modes:
            found[kind, mode] = updates(config, data, group(rank, world), steps, dtype, shard=mode == "shards")
    return found if rank == 0 else list(found)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    files = write_files(tmp_path_factory.mktemp("files"))
    return {kind: prepared(kind, files, tmp_path_factory.mktemp(kind)) for kind in QUICK}


@pytest.fixture(scope="module")
def by_two(made):
    """Three updates of every kind in two processes, in double precision."""
    found, others = together(2, trained, made, 3, torch.float64, MODES)
    assert isinstance(found, dict), found
    assert others == list(found)
    return found


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", QUICK)
def test_two_processes_train_as_one_does(made, by_two, kind, mode):
    config, data = made[kind]
    assert apart(alone(config, data, 3, torch.float64), by_two[kind, mode]) < 1e-9


def test_every_update_was_split_as_it_should_be(made):
    """Of the kinds above: halves of rows, whole batches, and batches of a row, of which one process has nothing."""
    seen = {}
    for kind in ("padded", "packed", "lone", "carried"):
        config, data = made[kind]
        stream = data.stream(Position(), pin=False, pack=config.train.pack == "always")
        parts = [next(stream) for _ in range(config.train.accumulate)]
        seen[kind] = parts, [share(parts, rank, 2) for rank in range(2)]
        stream.close()
    parts, shares = seen["padded"]
    assert [len(one) for one in shares] == [3, 3]
    assert len({sum(part.count for part in one) for one in shares}) == 2, "unequal counts"
    parts, shares = seen["packed"]
    assert shares == [[parts[0]], [parts[1]]]
    assert any(isinstance(part, Idle) for one in seen["lone"][1] for part in one)
    assert isinstance(seen["carried"][0][0], StreamedWindows)


def test_shares_are_all_of_an_update_whatever_the_number_of_processes(made):
    _, data = made["padded"]
    stream = data.stream(Position(), pin=False, pack=False)
    parts = [next(stream) for _ in range(6)]
    stream.close()
    for world in range(1, 9):
        shares = [share(parts, rank, world) for rank in range(world)]
        assert len({len(one) for one in shares}) == 1, "all have equally many"
        real = [part for one in shares for part in one if not isinstance(part, Idle)]
        assert sum(part.count for part in real) == sum(part.count for part in parts)
        rows = sorted(tuple(row) for part in real for row in part.target.ids.tolist())
        assert rows == sorted(tuple(row) for part in parts for row in part.target.ids.tolist())


@pytest.mark.parametrize("kind", ["padded", "packed", "lone", "language", "carried", "images"])
def test_a_loader_gives_each_process_its_shares_and_the_position_of_all(made, kind):
    config, data = made[kind]
    pack, batches = config.train.pack == "always", config.train.accumulate
    with data.stream(Position(), pin=False, pack=pack) as stream:
        for rank in range(3):
            mine = data.stream(Position(0, 0), pin=False, pack=pack, share=Share(rank, 3, batches))
            whole = data.stream(Position(0, 0), pin=False, pack=pack)
            for _ in range(4):
                parts = [next(whole) for _ in range(batches)]
                found = [next(mine) for _ in range(mine.parts)]
                assert mine.position == whole.position
                wanted = share(parts, rank, 3)
                assert [isinstance(one, Idle) for one in found] == [isinstance(one, Idle) for one in wanted]
                for one, other in zip(found, wanted, strict=True):
                    if not isinstance(one, Idle):
                        assert (one.count, one.tokens) == (other.count, other.tokens)
                        width = one.labels.shape[1:]
                        labels = other.labels if not width else other.labels[:, : width[0]]
                        assert torch.equal(one.labels, labels)
            mine.close()
            whole.close()
        assert stream.parts == 1


def test_with_dropout_an_update_is_the_sum_of_what_each_process_finds_of_its_share(tmp_path):
    """Masks are each process's own, and so is how two passes over a row differ, which R-Drop adds to the loss."""
    files = write_files(tmp_path)
    config, data = prepared("r-drop", files, tmp_path / "run", "model.dropout=0.3", "train.clip=0")
    (found, *_), _ = together(2, updates_of_two, config, data)
    figures, gradients, count = found[0]
    with data.stream(Position(), pin=False, pack=False) as stream:
        parts = [as_type(next(stream), torch.float64)]
    model = build_model(config).double().train()
    assert count == sum(part.count for part in parts)
    divergence = 0.0
    for rank in range(2):
        seed_step(1, 1, rank)
        for part in share(parts, rank, 2):
            loss = data.objective.loss(model, part)
            (loss.total / count).backward()
            divergence += float(loss.parts["divergence"]) / count
    assert divergence > 0.01
    assert figures["divergence"] == pytest.approx(divergence, rel=1e-9)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(gradients[name], parameter.grad, rtol=1e-9, atol=1e-12)


def updates_of_two(rank, world, config, data):
    return updates(config, data, group(rank, world), 1, torch.float64)


@pytest.mark.long
@pytest.mark.parametrize(("dtype", "near"), [(torch.float64, 1e-9), (torch.float32, 1e-4)])
def test_fifty_updates_of_every_kind_in_two_and_three_processes(tmp_path, dtype, near):
    pytest.importorskip("PIL.Image")
    files = write_files(tmp_path)
    made = {kind: prepared(kind, files, tmp_path / kind) for kind in KINDS}
    ones = {kind: alone(config, data, 50, dtype) for kind, (config, data) in made.items()}
    for world in (2, 3):
        found = together(world, trained, made, 50, dtype, MODES, seconds=1500)[0]
        assert isinstance(found, dict), found
        for (kind, mode), values in found.items():
            assert apart(ones[kind], values) < near, (kind, mode, world)
