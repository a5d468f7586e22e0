"""The pictures of docs/plots: drawn again, and what they show in words."""

import pytest

from benchmarks import plots
from benchmarks.plots import main


@pytest.fixture(autouse=True)
def few(monkeypatch):
    monkeypatch.setattr("benchmarks.plots.rows", lambda every=plots.rows: every()[:5])


def test_both_are_drawn_and_said_and_a_folder_that_cannot_be_is_named(tmp_path, capsys):
    assert main(["--out", str(tmp_path / "new" / "plots")]) == 0
    assert sorted(one.name for one in (tmp_path / "new" / "plots").iterdir()) == [
        "predicted.svg",
        "splits.svg",
    ]
    said = capsys.readouterr().out
    assert "prefill-heavy: 512 in, 16 out: best with 29 of 64 layers on the L40S" in said
    assert "predictions within 15%" in said
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(SystemExit, match="file: "):
        main(["--out", str(tmp_path / "file")])
