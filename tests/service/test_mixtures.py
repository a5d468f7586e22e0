"""Mixtures of experts in a deployment: planned for, refused by name where they are to be served."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from service.deployment import engines
from service.deployment.file import load
from service.deployment.profiles import load_profiles
from service.documents.errors import DeploymentError, RefusedError
from service.documents.plans import When
from service.planning import lifecycle
from tests.rows import rows
from tests.service.scripted import DEPLOYMENT, write_deployment

pytestmark = pytest.mark.slow

CLUSTER = (Path(__file__).parents[2] / "examples" / "a100-l40s.yaml").read_text(encoding="utf-8")
MIXTRAL = {
    "architectures": ["MixtralForCausalLM"], "num_hidden_layers": 32, "hidden_size": 4096, "intermediate_size": 14_336,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32_000, "max_position_embeddings": 32_768,
    "num_local_experts": 8, "num_experts_per_tok": 2,
}  # fmt: skip


def mixtral(folder, text=CLUSTER, config=MIXTRAL, key="config", start="A100x2"):
    """The cluster of the example with Mixtral on it."""
    (folder / "mixtral").mkdir(exist_ok=True)
    (folder / "mixtral" / "config.json").write_text(json.dumps(config))
    place = "path: mixtral" if key == "path" else "config: mixtral/config.json"
    text = text.replace("config: llama-3-70b/config.json", place).replace("llama-3-70b", "mixtral")
    file = folder / "deployment.yaml"
    file.write_text(text.replace("start: L40Sx4", f"start: {start}"))
    return load(file)


def planned(deployment, text, folder):
    now = datetime(2026, 1, 5, 12, tzinfo=UTC)
    intent = lifecycle.translate(text, deployment, None, now)
    situation = lifecycle.Situation(deployment.model().start, generation=1)
    profiles = load_profiles(deployment, deployment.model(), folder)
    return lifecycle.plan(intent, deployment, deployment.model(), situation, profiles, When(now=now.isoformat()))


@rows("engine", ["", "engine: torch\n", "engine: vllm\n"])
@rows("key", ["path", "config"])
def test_a_mixture_of_experts_is_planned_for(tmp_path, key, engine):
    deployment = mixtral(tmp_path, CLUSTER + "\n" + engine, key=key)
    plan = planned(deployment, "use two A100 and keep P99 TTFT below 2 s", tmp_path)

    assert deployment.model().spec.parameters == pytest.approx(46.7e9, rel=0.01)
    assert {deployment.cluster.gpu(device).kind for device in plan.target.devices} == {"A100"}


def test_steps_take_longer_than_those_of_a_dense_model_that_computes_as_much(tmp_path):
    (tmp_path / "dense").mkdir()
    (tmp_path / "moe").mkdir()
    dense = MIXTRAL | {"architectures": ["MistralForCausalLM"], "intermediate_size": 2 * 14_336}
    plans = [
        planned(mixtral(tmp_path / name, config=config), "use bf16 and two A100", tmp_path)
        for name, config in (("moe", MIXTRAL), ("dense", dense))
    ]
    assert [plan.target.shape for plan in plans] == ["TP2", "TP2"]
    experts, narrow = (plan.prediction.tpot_s["mean"] for plan in plans)
    assert experts > 1.2 * narrow


@rows(("key", "line"), [("path", 20), ("config", 20)])
def test_a_mixture_of_experts_is_refused_where_it_is_to_be_served(tmp_path, key, line):
    deployment = mixtral(tmp_path, key=key)
    with pytest.raises(RefusedError) as refused:
        deployment.refuse_unless_served()

    assert str(refused.value) == (
        f"{tmp_path / 'deployment.yaml'}:{line}: models[0].{key}: mixtral is a mixture of experts "
        "(MixtralForCausalLM): it can be planned for but not served"
    )


async def test_no_engine_is_started_for_it(tmp_path):
    model = mixtral(tmp_path, key="path").model()
    with pytest.raises(RefusedError, match="mixtral is a mixture of experts"):
        await engines.start(model, engines.first(model))


def test_its_weights_must_fit_where_it_starts(tmp_path):
    with pytest.raises(DeploymentError, match=r"does not fit: 93.4 GB of weights leave no room"):
        mixtral(tmp_path, start="A100x1")


def test_a_cpu_that_it_would_be_measured_on_needs_a_profile(tmp_path):
    file = write_deployment(tmp_path, DEPLOYMENT.replace("start: pp2", ""))
    config = MIXTRAL | {"num_hidden_layers": 1, "hidden_size": 64, "intermediate_size": 64}
    (tmp_path / "counting" / "config.json").write_text(json.dumps(config))
    deployment = load(file)
    with pytest.raises(DeploymentError, match=r"not served; .* name a profile for CPU under profiles"):
        load_profiles(deployment, deployment.model(), tmp_path)
