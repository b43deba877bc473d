"""What differs on Windows and macOS, as far as Linux can play them: see docs/troubleshooting.md."""

import ast
import asyncio
import errno
import io
import os
import re
import signal
import socket
import stat
import subprocess
import sys
from importlib import resources
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import safetensors
import torch

import regard.cli
from regard.comparison.experiment import entries, entry, folder_name
from regard.data.prepared_cache import cached
from regard.errors import ConfigError, DataError, RunError
from regard.runs import files
from regard.runs.checkpoint import forget_checkpoints
from regard.runs.files import alone_in, check_output, run_names, whole_directory, whole_or_nothing, write_json
from regard.serve import connections, server
from regard.serve.limits import Limits
from regard.tasks.config import make_config
from regard.tasks.corpora import WorldCorpus
from regard.tasks.run import choose_device, choose_precision, inference_precision
from regard.trainer.launch import _forwarded
from regard.trainer.machine import stop_signals
from regard.training.processes import _own_device

ROOT = Path(__file__).parents[2]
fcntl = pytest.importorskip("fcntl", reason="plays Windows on a system that is not")


def writes_of_text(tree):
    """Calls that write text to a file, or may."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        named = {one.arg: one.value for one in node.keywords}
        if name == "write_text" and isinstance(node.func, ast.Attribute):
            yield node, named
        modes = [one.value for one in (*node.args[:2], *named.values()) if isinstance(one, ast.Constant)]
        if name in ("open", "fdopen") and any(one in modes for one in ("w", "a", "x", "w+", "r+", "wt", "at")):
            yield node, named


def unsaid(tree):
    for node, named in writes_of_text(tree):
        given = {name: getattr(value, "value", None) for name, value in named.items()}
        if given.get("encoding") != "utf-8" or given.get("newline") != "\n":
            yield node


def test_every_text_is_written_in_utf8_with_the_same_ends_of_lines_everywhere():
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)[:80]}"
        for path in sorted((ROOT / "regard").rglob("*.py"))
        for node in unsaid(ast.parse(path.read_text(encoding="utf-8")))
        if "/proc/" not in ast.unparse(node)
    ]
    assert found == []


def test_the_search_for_such_writes_finds_them():
    for text in ("p.write_text(a)", "p.write_text(a, encoding='utf-8')", "p.open('w', newline='\\n')", "open(p, 'a')"):
        assert list(unsaid(ast.parse(text))), text
    for text in ("p.write_text(a, encoding='utf-8', newline='\\n')", "p.open('wb')", "p.open()", "write_text(p, a)"):
        assert not list(unsaid(ast.parse(text))), text


@pytest.fixture
def windows_files(monkeypatch):
    """No directory can be opened, and only a file that is open for writing can be synced."""
    opened, synced = os.open, os.fsync

    def open_file(path, flags, *rest, **more):
        if not isinstance(path, int) and os.path.isdir(path) and not flags & os.O_DIRECTORY:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return opened(path, flags, *rest, **more)

    def sync(descriptor):
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        synced(descriptor)

    monkeypatch.setattr(os, "open", open_file)
    monkeypatch.setattr(os, "fsync", sync)


class Locking:
    """Windows' locks of a file's bytes, by those of a whole file."""

    LK_NBLCK, LK_UNLCK = 2, 0

    def locking(self, descriptor, mode, count):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_UN if mode == self.LK_UNLCK else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES)) from None


@pytest.fixture
def windows_locks(monkeypatch):
    monkeypatch.setattr(files, "fcntl", None)
    monkeypatch.setattr(files, "msvcrt", Locking(), raising=False)


def test_files_are_written_where_no_directory_can_be_synced(windows_files, windows_locks, tmp_path):
    write_json(tmp_path / "a.json", {"é": 1})
    assert (tmp_path / "a.json").read_bytes() == '{\n  "é": 1\n}\n'.encode()
    for content in (b"1", b"2"):
        with whole_directory(tmp_path / "step") as aside:
            (aside / "one").write_bytes(content)
    assert (tmp_path / "step" / "one").read_bytes() == b"2"
    with whole_or_nothing(tmp_path / "new"):
        write_json(tmp_path / "new" / "b.json", {})

    def store(folder):
        if not (folder / "ids").exists():
            raise DataError("nothing there")
        return np.fromfile(folder / "ids", dtype=np.uint16).tolist()

    made = cached(
        tmp_path / "cache", ["key"], store, lambda folder: np.arange(3, dtype=np.uint16).tofile(folder / "ids")
    )
    assert made == [0, 1, 2]


def test_a_file_system_that_syncs_no_directories_will_do(monkeypatch, tmp_path):
    synced, refusal = os.fsync, [errno.EINVAL]

    def sync(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(refusal[0], os.strerror(refusal[0]))
        synced(descriptor)

    monkeypatch.setattr(os, "fsync", sync)
    write_json(tmp_path / "a.json", {})
    refusal[0] = errno.EIO
    with pytest.raises(RunError, match="Input/output error"):
        write_json(tmp_path / "a.json", {})


def test_files_that_may_only_be_read_are_synced_too(tmp_path, monkeypatch):
    (tmp_path / "a").touch(0o444)
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK or os.stat(path).st_mode & 0o200 != 0)
    opened = []
    monkeypatch.setattr(os, "open", lambda path, flags, *rest, real=os.open: opened.append(flags) or real(path, flags))
    files.sync(tmp_path / "a")
    assert opened == [os.O_RDONLY]


def test_where_directories_cannot_be_locked_a_file_beside_is_and_where_nothing_can_that_is_said(tmp_path, monkeypatch):
    """NFS locks only what is open for writing; some file systems lock nothing."""
    run, real, said = tmp_path / "run", files.fcntl.flock, []
    run.mkdir()

    def only_files(handle, how):
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        real(handle, how)

    monkeypatch.setattr(files.fcntl, "flock", only_files)
    with alone_in(run, said.append):
        assert (tmp_path / ".run.lock").exists()
        with pytest.raises(RunError, match="run is being written to by another process"), alone_in(run):
            pytest.fail("two are alone")
    assert list(tmp_path.iterdir()) == [run], "the lock goes with its owner"
    assert said == []

    def none(handle, how):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(files.fcntl, "flock", none)
    with alone_in(run, said.append):
        pass
    assert said == [f"{run} cannot be locked (No locks available): see that no other process writes to it meanwhile"]


def test_a_directory_is_locked_without_locks_of_directories(windows_locks, tmp_path):
    run = tmp_path / "run"
    with whole_or_nothing(run):
        with pytest.raises(RunError, match="run is being written to by another process"), alone_in(run):
            pytest.fail("two are alone")
        with pytest.raises(RunError, match="run is being written to by another process"), alone_in(run):
            pytest.fail("the first that was refused took the lock away")
        assert list(run.iterdir()) == []
    assert list(tmp_path.iterdir()) == [run]
    with pytest.raises(KeyError), whole_or_nothing(tmp_path / "failing"):
        raise KeyError
    assert list(tmp_path.iterdir()) == [run]


def test_a_checkpoint_that_is_in_use_goes_with_the_next(monkeypatch, tmp_path):
    for step in (1, 2, 3):
        (tmp_path / f"step-{step}").mkdir()
        (tmp_path / f"step-{step}" / "file").touch()
    replaced, removed, held = os.replace, os.unlink, {"step-1"}

    def replace(source, target):
        if Path(source).name in held:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(source))
        replaced(source, target)

    def unlink(path, **more):
        if "file" in held:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        removed(path, **more)

    monkeypatch.setattr(os, "replace", replace)
    monkeypatch.setattr(os, "unlink", unlink)
    held.add("file")
    forget_checkpoints(tmp_path, 1, set())
    assert sorted(path.name for path in tmp_path.iterdir()) == [".step-2.removed", "step-1", "step-3"]
    held.clear()
    forget_checkpoints(tmp_path, 1, set())
    assert [path.name for path in tmp_path.iterdir()] == ["step-3"]


def test_a_full_disk_is_known_by_windows_words_too(tmp_path):
    words = "Error while serializing: There is not enough space on the disk. (os error 112)"
    with pytest.raises(RunError, match="the disk is full"), files.write_errors(tmp_path / "a"):
        raise safetensors.SafetensorError(words)


@pytest.mark.parametrize("name", ["Config.json", "LOG.JSONL", "Checkpoints/a.txt"])
def test_part_of_a_run_is_known_by_its_name_in_any_case(tmp_path, name):
    for own in ("config.json", "log.jsonl"):
        (tmp_path / own).touch()
    with pytest.raises(RunError, match="is part of the run"):
        check_output(tmp_path / name)


def test_runs_are_named_without_the_letter_of_a_drive_in_the_way(monkeypatch):
    monkeypatch.setattr(os, "sep", "\\")
    monkeypatch.setattr(Path, "resolve", lambda drive: SimpleNamespace(parts=(f"{drive}\\", "a", "run")))
    assert run_names([Path("C:"), Path("D:")]) == ["C:/a/run", "D:/a/run"]


def test_a_configuration_may_be_on_a_drive(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    preset = resources.files("regard").joinpath("presets", "tiny.toml").read_text(encoding="utf-8")
    name = "C:\\settings\\mine.toml"  # elsewhere a name like any other
    Path(name).write_text(preset, encoding="utf-8")
    wide = entry(f"wide={name}:model.width=64")
    assert (wide.name, wide.config.model["width"]) == ("wide", 64)
    assert entry(name).config.model["width"] != 64


@pytest.mark.parametrize(("first", "second"), [("Wide", "wide"), ("a b", "a-b"), ("é", "É")])
def test_no_two_configurations_share_a_directory(first, second):
    with pytest.raises(ConfigError, match=f"'{first}' and '{second}' would share"):
        entries([f"{first}=tiny", f"{second}=tiny:model.width=64"])


@pytest.mark.parametrize("name", ["con", "NUL", "com1", "aux.toml", "charts", "Cache", "plan.json"])
def test_a_configuration_has_a_name_that_a_directory_can_have(name):
    with pytest.raises(ConfigError, match="choose another name"):
        folder_name(name)
    assert folder_name("console") == "console"


def test_the_bundled_corpus_is_the_same_under_any_ends_of_lines(monkeypatch):
    before = WorldCorpus(3, 1, "train", "en").digest()
    read = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: read(path).replace(b"\n", b"\r\n"))
    assert WorldCorpus(3, 1, "train", "en").digest() == before


@pytest.fixture
def sigbreak(monkeypatch):
    """What Ctrl-Break sends on Windows."""
    monkeypatch.setattr(signal, "SIGBREAK", signal.SIGUSR1, raising=False)
    return signal.SIGUSR1


def test_ctrl_break_stops_training_like_ctrl_c(sigbreak):
    with stop_signals() as stopped:
        assert not stopped()
        signal.raise_signal(sigbreak)
        assert stopped()
    assert signal.getsignal(sigbreak) == signal.SIG_DFL


def test_ctrl_break_ends_a_command_like_ctrl_c(sigbreak):
    with pytest.raises(KeyboardInterrupt), regard.cli._termination():
        signal.raise_signal(sigbreak)
    assert signal.getsignal(sigbreak) == signal.SIG_DFL


@pytest.fixture
def deaf_to_hang_ups():
    """As nohup leaves a process."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="Windows has no SIGHUP")
def test_what_nohup_started_goes_on_when_the_terminal_is_closed(deaf_to_hang_ups):
    with regard.cli._termination(), _forwarded([]), stop_signals() as stopped:
        signal.raise_signal(signal.SIGHUP)
        assert not stopped()


class Started(subprocess.Popen):
    """What a launcher has started, which notes its signals."""

    returncode, _child_created = 0, False

    def __init__(self):
        self.signals = []

    def send_signal(self, number):
        self.signals.append(number)


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="Windows has no SIGHUP")
def test_a_launcher_whose_terminal_is_closed_stops_its_processes_once(deaf_to_hang_ups):
    """By its shell's SIGHUP and the system's; a Ctrl-C after that is a second word, and ends at once."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    started = Started()
    with _forwarded([started]):
        signal.raise_signal(signal.SIGHUP)
        signal.raise_signal(signal.SIGHUP)
        assert started.signals == [signal.SIGTERM]
        signal.raise_signal(signal.SIGINT)
    assert started.signals == [signal.SIGTERM] * 2


def test_what_goes_into_a_pipe_is_utf8_with_plain_ends_of_lines(monkeypatch):
    into = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(into, encoding="cp1252", newline="\r\n"))
    regard.cli._write_utf8()
    print("→ été")
    sys.stdout.flush()
    assert into.getvalue() == "→ été\n".encode()


def test_a_terminal_that_lacks_a_letter_shows_its_number(monkeypatch):
    into = io.BytesIO()
    terminal = io.TextIOWrapper(into, encoding="ascii")
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stdout", terminal)
    regard.cli._write_utf8()
    print("été", flush=True)
    assert into.getvalue() == b"\\xe9t\\xe9\n"


def test_what_is_typed_ends_as_the_system_has_it(monkeypatch):
    from regard.cli.options import end_of_input

    assert end_of_input() == "Ctrl-D"
    monkeypatch.setattr(sys, "platform", "win32")
    assert end_of_input() == "Ctrl-Z and Enter"


def test_a_port_is_ours_alone_where_another_program_could_take_it_over(monkeypatch):
    with server._bound("127.0.0.1", 0) as plain:
        assert plain.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)
    monkeypatch.setattr(socket, "SO_EXCLUSIVEADDRUSE", socket.SO_KEEPALIVE, raising=False)
    with server._bound("127.0.0.1", 0) as exclusive:
        assert exclusive.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert not exclusive.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)


def test_as_many_connections_as_select_can_watch(monkeypatch):
    monkeypatch.setitem(sys.modules, "resource", None)
    assert connections.most_connections(Limits(connections=2000)) == 512 - connections.SPARE
    assert connections.most_connections(Limits(connections=7)) == 7


def test_connections_are_counted_where_open_files_are_not_listed(monkeypatch):
    def listed(path):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)

    monkeypatch.setattr(os, "listdir", listed)
    assert connections.most_connections(Limits(connections=7)) == 7


def test_a_server_runs_on_the_loop_that_can_watch_its_socket(monkeypatch):
    """Windows' own loop cannot."""
    ran = []

    class Server:
        def __init__(self, *arguments):
            pass

        async def serve(self, sockets):
            ran.append(asyncio.get_running_loop())

    monkeypatch.setattr(asyncio, "new_event_loop", lambda: pytest.fail("the system's own loop"))
    monkeypatch.setattr(server, "Server", Server)
    monkeypatch.setattr(server, "make_app", lambda *arguments, **more: None)
    monkeypatch.setattr(server, "_share_the_cores", lambda threads: None)
    server.serve({}, port=0)
    assert isinstance(ran[0], asyncio.SelectorEventLoop)


def test_a_server_computes_with_the_threads_it_is_given(monkeypatch):
    class Server:
        def __init__(self, *arguments):
            pass

        async def serve(self, sockets):
            pass

    translates, classifies = (
        SimpleNamespace(run=SimpleNamespace(task=SimpleNamespace(methods=methods), translator=SimpleNamespace()))
        for methods in (("translate",), ("classify",))
    )
    app, told = SimpleNamespace(state=SimpleNamespace(models=[translates, classifies])), []
    monkeypatch.setattr(server, "Server", Server)
    monkeypatch.setattr(server, "make_app", lambda *arguments, **more: app)
    monkeypatch.setattr(server, "_share_the_cores", told.append)
    server.serve({}, port=0, threads=3)
    assert (told, translates.run.translator.threads) == ([3], 3)
    assert not vars(classifies.run.translator)


def test_the_gpu_of_a_mac_is_a_device_where_torch_finds_it(monkeypatch):
    with pytest.raises(ConfigError, match="torch finds no GPU of Apple's here: use cpu"):
        choose_device("mps")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    device = choose_device("mps")
    assert device == torch.device("mps")
    assert choose_device("auto").type in ("cpu", "cuda")
    assert choose_precision("auto", device) == torch.float32
    config = make_config("tiny")
    assert inference_precision("auto", device, config) == "float32"
    for precision in ("int8", "bfloat16"):
        with pytest.raises(ConfigError, match=f"precision={precision}"):
            inference_precision(precision, device, config)


def test_processes_do_not_share_the_gpu_of_a_mac(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match="2 processes train on CPUs or on CUDA's GPUs"):
        _own_device(torch.device("mps"))


OF_THE_CPU = {
    "nn/positions.py": "tables, made on the CPU",
    "nn/quantized.py": "matrices of whole numbers, for a CPU alone",
    "nn/decoding_kernels.py": "kernels of CUDA",
    "decode/slots.py": "searches that stay on a device of CUDA's",
    "tasks/batched_generation.py": "numbers sampled on the CPU",
    "tasks/images.py": "probabilities that were copied to the CPU",
    "tasks/transcriber.py": "log-probabilities that were copied to the CPU",
    "training/optim.py": "weights of checkpoints, read on the CPU",
    "training/processes.py": "counts, added up on the CPU",
    "look/calculator.py": "numbers of the user's, on the CPU",
    "look/measures.py": "beside weights that `doubles` gave",
    "analysis/head_roles.py": "products of vectors that were copied to the CPU",
    "analysis/gradients.py": "a matrix that was copied to the CPU",
}
"""Files in which tensors of float64 are made otherwise than by `doubles`, and why they are not on a Mac's GPU."""


def test_tensors_of_twofold_precision_are_made_where_every_device_has_them():
    """A Mac's GPU has none, and an error says so only there."""
    kinds = re.compile(r"\.double\(\)|torch\.(?:float64|double)\b|tl\.float64")
    rooms = ("nn", "models", "training", "decode", "look", "tasks", "trainer", "analysis", "comparison")
    found = {
        path.relative_to(ROOT / "regard").as_posix()
        for room in rooms
        for path in (ROOT / "regard" / room).rglob("*.py")
        if kinds.search(path.read_text(encoding="utf-8"))
    }
    assert found - {"nn/double_precision.py"} == OF_THE_CPU.keys()
