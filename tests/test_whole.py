"""Files that are written whole or not at all."""

import sys
from pathlib import Path

import pytest

from touchline.errors import UsageError
from touchline.whole import require_writable


def test_what_cannot_be_written_is_refused_and_a_check_leaves_nothing_behind(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "folder.mp4").mkdir()
    before = sorted(tmp_path.rglob("*"))
    require_writable(tmp_path / "file")
    require_writable(tmp_path / "new" / "one")
    for wrong in ("file/one", "folder.mp4", "x" * 300):
        with pytest.raises(UsageError, match="cannot be written"):
            require_writable(tmp_path / wrong)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")
def test_a_folder_that_takes_no_files_is_refused_whatever_its_permissions_say():
    with pytest.raises(UsageError, match="/proc is no folder that you may write to"):
        require_writable(Path("/proc/film.mp4"))
