"""The simulator's router takes the replica that the runtime's takes."""

from types import SimpleNamespace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from runtime.replicas.choice import BAND, PROMPT, Bounds, Measured, ReplicaSpeed, Work, choose, forecast
from selector.performance import simulator
from selector.performance.simulator import _PREFILLED, _RUNNING, _WAITS

SECONDS = st.floats(1e-4, 0.1)
OUTPUTS = 100.0


@st.composite
def replicas(draw: st.DrawFn) -> list[tuple[ReplicaSpeed, Work, int]]:
    """So many with a speed, what each has to do, and how many requests it got so far."""
    found = []
    for _ in range(draw(st.integers(1, 5))):
        speed = ReplicaSpeed(draw(SECONDS), draw(SECONDS), draw(SECONDS), draw(st.integers(1, 64)))
        work = Work(draw(st.integers(0, 80)), draw(st.integers(0, 40)), draw(st.integers(0, 5000)))
        found.append((speed, work, work.running + work.waiting + draw(st.integers(0, 50))))
    return found


@given(replicas(), st.integers(1, 4000), st.floats(0.01, 20), st.floats(0.001, 2))
def test_both_choose_alike(known, prompt, ttft_s, tpot_s):
    shares = np.full(len(known), 1 / len(known))
    counted = np.array([got for _, _, got in known])
    runs = []
    for _, work, got in known:
        counts = np.zeros(8, np.int64)
        counts[_RUNNING] = work.running
        counts[_WAITS] = got - work.waiting
        counts[_PREFILLED] = 0
        runs.append(SimpleNamespace(counts=counts))
    paces = np.array([[speed.step_s, speed.sequence_s, speed.token_s, speed.slots] for speed, _, _ in known]).T
    rule = paces, shares[None, :], np.array([OUTPUTS, PROMPT * ttft_s, tpot_s, BAND])
    prompts = np.array([work.prompt_tokens for _, work, _ in known])
    limits = np.full((len(known), 4), 10**9)
    taken = counted[None, :].astype(float)
    request = np.array([prompt, 10, 0])
    simulated = simulator._choose.py_func(runs, limits, (counted, prompts, taken), request, 0, rule)
    forecasts = [forecast(speed, Measured(), work, prompt, OUTPUTS) for speed, work, _ in known]
    behind = (shares - counted / max(1.0, counted.sum())).tolist()
    assert simulated == choose(forecasts, Bounds(ttft_s, tpot_s), behind, [False] * len(known))
