"""Memory and time of answering a long file, with a decoder that does nothing: what reading, order and journal take.

    python benchmarks/decoding_memory.py --lines 1000000 --processes 2

Prints the greatest memory of this process after a tenth of the lines and after all, in MB, and lines per second. With
several processes these do nothing either: they are forked, and give back what they read.
"""

import argparse
import json
import os
import resource
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import Any

from regard.analysis import decoding_files, file_jobs, worker_processes
from regard.analysis.decoding_files import answer_job
from regard.analysis.file_jobs import FileJob
from regard.analysis.output_journal import Tally


class Upper:
    """Every line in capitals, as a loaded run would answer it."""

    size = file_jobs.CHUNK

    def __init__(self, job: FileJob, run: object) -> None:
        self._lines, self._at = Path(job.files[0]).open(encoding="utf-8"), 0  # noqa: SIM115

    def answer(self, first: int, size: int) -> tuple[str, Tally, list[str]]:
        for _ in islice(self._lines, first - self._at):
            pass
        some = list(islice(self._lines, size))
        self._at = first + len(some)
        return "".join(some).upper(), Tally(len(some), total=len(some)), []

    def chunks(self, first: int) -> Any:
        while True:
            yield self.answer(first, self.size)
            first += self.size

    def notes(self, done: Tally) -> str:
        return ""


class Forked:
    """A process that `Workers` talks to."""

    def __init__(self, command: object, world: int, own: object = (), **pipes: object) -> None:
        asked, answers = os.pipe(), os.pipe()
        self.pid = os.fork()
        if not self.pid:
            os.dup2(asked[0], 0)
            os.dup2(answers[1], 1)
            os.closerange(3, 256)
            worker_processes.serve_requests()
            os._exit(0)
        os.close(asked[0])
        os.close(answers[1])
        self.stdin, self.stdout = os.fdopen(asked[1], "wb"), os.fdopen(answers[0], "rb")

    def kill(self) -> None:
        os.kill(self.pid, 9)

    def wait(self, seconds: float | None = None) -> int:
        return os.waitpid(self.pid, 0)[1]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()
    loaded: dict[str, Any] = {"ChunkAnswerer": Upper, "loaded": lambda *given: None}
    forked = {"start_process": Forked, "chunk_size": lambda run: Upper.size, "_device_of": lambda *given: None}
    for name, value in loaded.items():
        setattr(decoding_files, name, value)
    for name, value in (loaded | forked).items():
        setattr(worker_processes, name, value)
    with tempfile.TemporaryDirectory() as folder:
        source, out = Path(folder) / "in.txt", Path(folder) / "out.txt"
        with source.open("w", encoding="utf-8") as file:
            file.writelines(f"line {number} of a file that is long\n" for number in range(options.lines))
        job, peaks, began = FileJob(verb="translate", run="none", files=(str(source),)), [], time.perf_counter()

        def noted(done: int, total: int | None) -> None:
            if not peaks and done >= options.lines // 10:
                peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000)

        assert answer_job(job, out, options.processes, progress=noted) == options.lines
        seconds = time.perf_counter() - began
        peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000)
        with out.open(encoding="utf-8") as file:
            assert all(line == f"LINE {number} OF A FILE THAT IS LONG\n" for number, line in enumerate(file))
    found = {"lines": options.lines, "processes": options.processes, "MB at a tenth": round(peaks[0])}
    print(json.dumps(found | {"MB in the end": round(peaks[-1]), "lines per second": round(options.lines / seconds)}))


if __name__ == "__main__":
    main()
