import itertools

from benchmarks.access_cost import by_turns, main
from service.access.audit import Audit


def test_turns_alternate_and_leave_the_audit_as_it_was():
    add, clock, seen = Audit.add, itertools.count(), []

    def ask() -> float:
        seen.append(Audit.add is add)
        return float(next(clock))

    times = by_turns(3, ask)
    assert seen == [True, True, False, False, True, True, False]
    assert times == {"audited_ms": [1.0, 4.0, 5.0], "unaudited_ms": [2.0, 3.0, 6.0]}
    assert Audit.add is add


def test_both_are_measured(tmp_path, capsys):
    main(["--rounds", "3", "--json", str(tmp_path / "cost.json")])
    assert "key_cpu_ms" in capsys.readouterr().out
