import subprocess
import sys
from pathlib import Path


def test_model_and_loss_compile_to_one_graph_with_the_same_gradients():
    script = Path(__file__).with_name("compiled_loss.py")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert done.stdout == "one graph, the same gradients\n", done.stderr[-3000:]


def test_blocks_of_one_kind_are_compiled_once_with_the_same_gradients():
    script = Path(__file__).with_name("compiled_blocks.py")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert done.stdout == "two graphs for seven blocks, the same gradients\n", done.stderr[-3000:]
