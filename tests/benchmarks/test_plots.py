"""The pictures of docs/plots: drawn again, and what they show in words."""

import pytest

from benchmarks import plots
from benchmarks.plots import main
from benchmarks.provenance import ROOT


@pytest.fixture(autouse=True)
def few(monkeypatch):
    monkeypatch.setattr("benchmarks.plots.rows", lambda every=plots.rows: every()[:5])


@pytest.mark.slow
def test_both_are_drawn_and_said(tmp_path, capsys):
    assert main(["--out", str(tmp_path / "new" / "plots")]) == 0
    assert sorted(one.name for one in (tmp_path / "new" / "plots").iterdir()) == [
        "predicted.svg",
        "splits.svg",
    ]
    said = capsys.readouterr().out
    assert "prefill-heavy: 512 in, 16 out: best with 29 of 64 layers on the L40S" in said
    assert "predictions within 15%" in said


def test_the_documents_show_both():
    text = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    for name in ("splits.svg", "predicted.svg"):
        assert f"(plots/{name})" in text
        assert (ROOT / "docs" / "plots" / name).read_text(encoding="utf-8").rstrip().endswith("</svg>")


@pytest.mark.slow
def test_a_folder_that_cannot_be_is_named(tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(SystemExit, match="file: "):
        main(["--out", str(tmp_path / "file")])
