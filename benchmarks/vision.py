"""A Vision Transformer beside a convolutional network of as many parameters, by the number of training images.

regard data digits digits
python benchmarks/vision.py digits/digits.npz --processes 4 --device cuda --graphs --out vision.json

Two questions, both about scikit-learn's digits. `as they are`: images of 8 x 8 pixels, centred. `strewn`: a digit
turned, zoomed and put anywhere on a field of 24 x 24 pixels with noise, so that there are as many images as wanted;
those to train on are made of the training digits, those to test on of the test digits. Nothing is augmented: how many
images there are is what is varied. Every run has the same number of updates of as many images; two seeds, which also
choose the images.
"""

import argparse
import json
import multiprocessing
import tempfile
from pathlib import Path

SIZES = {"as they are": (50, 100, 200, 400, 800, 1438), "strewn": (300, 1000, 3000, 10_000, 30_000, 100_000)}
MODELS = {
    "as they are": {
        "vit": ("vit-digits", ["train.batch_tokens=2176"]),
        "convnet": ("convnet-digits", ["train.batch_tokens=512"]),
    },
    "strewn": {
        "vit": ("vit-digits", ["model.image_size=24", "model.patch_size=4", "train.batch_tokens=9472"]),
        "convnet": ("convnet-digits", ["model.image_size=24", "train.batch_tokens=9216"]),
    },
}
"""128 images of an update as they are, 256 strewn."""
TEST = 4000
NOISE = 0.1


def strewn(images, labels, count, seed):
    """`count` images of 24 x 24 pixels with one of these digits somewhere on each, and their labels."""
    import torch

    luck = torch.Generator().manual_seed(seed)

    def uniform(low, high):
        return low + (high - low) * torch.rand(count, generator=luck)

    chosen = torch.randint(len(images), (count,), generator=luck)
    digits = torch.from_numpy(images[chosen.numpy()]).float()[:, None] / 255
    angle, size = uniform(-0.35, 0.35), uniform(1.0, 1.6) / 3  # a digit takes up that part of the field's side
    x, y = uniform(-1, 1) * (1 - size), uniform(-1, 1) * (1 - size)
    cos, sin = angle.cos() / size, angle.sin() / size
    rows = (torch.stack((cos, -sin, -(cos * x - sin * y)), -1), torch.stack((sin, cos, -(sin * x + cos * y)), -1))
    grid = torch.nn.functional.affine_grid(torch.stack(rows, 1), [count, 1, 24, 24], align_corners=False)
    field = torch.nn.functional.grid_sample(digits, grid, align_corners=False)[:, 0]
    field = field + NOISE * torch.randn(field.shape, generator=luck)
    return (255 * field.clamp(0, 1)).round().byte().numpy(), labels[chosen.numpy()]


def one(work):
    import numpy as np
    import torch

    import regard
    from regard.comparison.budget import count_parameters, with_parameters
    from regard.tasks.config import make_config
    from regard.trainer.trainer import train

    torch.set_num_threads(1)
    question, kind, count, seed, asked = work
    digits = np.load(asked.digits)
    images, labels, tests = digits["train_images"], digits["train_labels"], digits["test_images"]
    if question == "strewn":
        images, labels = strewn(images, labels, count, seed)
        tests, answers = strewn(tests, digits["test_labels"], TEST, 0)
    else:
        chosen = np.random.default_rng(seed).permutation(len(images))[:count]
        images, labels, answers = images[chosen], labels[chosen], digits["test_labels"]
    preset, own = MODELS[question][kind]
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "images.npz"
        parts = {"train_images": images, "train_labels": labels, "test_images": tests, "test_labels": answers}
        np.savez(data, **parts)
        updates = asked.updates
        settings = [
            *own,
            *("images.rotate=0.0", "images.shift=0.0", "images.zoom=0.0", "images.held_out=0.0"),
            *(f"train.steps={updates}", f"train.save_every={updates}", f"train.validate_every={updates}"),
            *(f"train.warmup={max(1, updates // 20)}", f"train.seed={seed}", "train.threads=1"),
            *(f"train.device={asked.device}", f"train.cuda_graphs={'true' if asked.graphs else 'false'}"),
            *("train.precision=float32", f'data.train=["{data}"]', f"model.labels={json.dumps(list('0123456789'))}"),
        ]
        config = with_parameters(make_config(None, preset, settings), asked.parameters)
        train(config, Path(folder) / "run")
        run = regard.load(Path(folder) / "run", device=asked.device)
        scores = regard.evaluate(run)
    return {
        **{"question": question, "model": kind, "images": count, "seed": seed, "updates": updates},
        **{"parameters": count_parameters(config), "accuracy": scores["accuracy"], "tested": scores["pictures"]},
        **{"interval": scores["accuracy_interval"], "loss": scores["nll"]},
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("digits", type=Path, help="what `regard data digits` wrote")
    parser.add_argument("--updates", type=int, default=4000)
    parser.add_argument("--parameters", type=int, default=136_000)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--questions", nargs="+", default=list(SIZES), choices=list(SIZES))
    parser.add_argument("--counts", type=int, nargs="+", help="training images; by default several, by question")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--graphs", action="store_true", help="CUDA graphs")
    parser.add_argument("--out", type=Path, default=Path("vision.json"))
    asked = parser.parse_args()
    works = [
        (question, kind, count, seed, asked)
        for seed in range(1, asked.seeds + 1)
        for question in asked.questions
        for count in asked.counts or SIZES[question]
        for kind in MODELS[question]
    ]
    found = []
    with multiprocessing.get_context("spawn").Pool(asked.processes) as pool:
        for result in pool.imap_unordered(one, works):
            found.append(result)
            asked.out.write_text(json.dumps(found, indent=1), encoding="utf-8")
            what = f"{result['question']:11} {result['model']:8} {result['images']:7,} images, seed {result['seed']}"
            print(f"{what}: {100 * result['accuracy']:.2f} % of {result['tested']:,}", flush=True)
