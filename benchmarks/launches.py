"""What an update costs the host and the GPU, for every way of compiling it: run by hand, on a GPU.

    python benchmarks/launches.py transformer-base train.batch_tokens=32768

Prints one line per way: tokens per second, milliseconds per step, milliseconds of it that the host is busy.
"""

import sys

from regard import make_config
from regard.bench.training_speed import bench_train

PLAIN = ["train.accumulate=1", "train.compile=false", "train.compile_blocks=false", "train.cuda_graphs=false"]
WAYS = {
    "eager": [],
    "compiled": ["train.compile=true"],
    "with its loss": ["train.compile=true", "train.compile_loss=true"],
    "replayed": ["train.cuda_graphs=true"],
    "blocks compiled, replayed": ["train.compile_blocks=true", "train.cuda_graphs=true"],
    "compiled, replayed": ["train.compile=true", "train.cuda_graphs=true"],
    "with its loss, replayed": ["train.compile=true", "train.compile_loss=true", "train.cuda_graphs=true"],
}


def main(preset: str, *settings: str) -> None:
    for name, extra in WAYS.items():
        config = make_config(None, preset, [*settings, *PLAIN, *extra])
        try:
            (one,) = bench_train(config, peer=False)["results"]
        except Exception as error:  # one way that a machine cannot do should not hide the others
            print(f"{name:24} {type(error).__name__}: {str(error).splitlines()[0]}", flush=True)
            continue
        print(
            f"{name:24} {one['tokens_per_second']:>12,.0f} tokens/s  {1000 * one['step_seconds']:8.2f} ms per step  "
            f"{1000 * one['launch_seconds']:8.2f} ms on the host  {(one['memory_bytes'] or 0) / 2**30:6.2f} GiB",
            flush=True,
        )


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["transformer-base"]))
