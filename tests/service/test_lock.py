from pathlib import Path

import pytest

from service.documents.errors import StartError
from service.store.lock import take_lock


def test_a_data_folder_has_one_service_at_a_time(tmp_path: Path):
    folder = tmp_path / "new"
    first = take_lock(folder)
    with pytest.raises(StartError, match=r"another service uses .*--data-dir"):
        take_lock(folder)
    first.close()
    take_lock(folder).close()


def test_a_folder_that_cannot_be_written_is_named():
    with pytest.raises(StartError, match="/proc/nope cannot be written"):
        take_lock(Path("/proc/nope"))
