"""What every family of checkpoints is refused alike."""

import pytest

from regard.errors import RegardError
from regard.interop.huggingface import import_directory


def refused(folder, tmp_path, pattern, kind=RegardError):
    """The reason why `folder` is not imported, which leaves nothing behind."""
    with pytest.raises(kind, match=pattern) as found:
        import_directory(folder, tmp_path / "new")
    assert not (tmp_path / "new").exists()
    return str(found.value)
