import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from intent.models import RecurringWindow
from runtime.models import Link
from runtime.vllm_engine.models import VllmSettings
from selector.models import CHAT_INPUTS, CHAT_OUTPUTS, Spread, Workload
from service.deployment.engines import capabilities
from service.deployment.file import load
from service.documents.errors import DeploymentError, RefusedError
from tests.rows import rows
from tests.service.scripted import CONFIG, DEPLOYMENT, read, refused, write_deployment

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_reference_cluster_has_four_of_each_kind_and_a_model_that_is_only_a_shape():
    deployment = load(EXAMPLES / "a100-l40s.yaml")

    assert [gpu.kind for gpu in deployment.cluster.gpus] == ["A100"] * 4 + ["L40S"] * 4
    assert [gpu.index for gpu in deployment.cluster.gpus] == list(range(8))
    assert deployment.cluster.gpus[0].memory_bytes == 80_000_000_000
    assert deployment.cluster.nodes[0].link.bandwidth_bytes_s == 300e9
    assert 70e9 < deployment.model().spec.parameters < 71e9
    with pytest.raises(RefusedError, match="not served"):
        deployment.model().to_serve()


@rows("name", ["local-cpu.yaml", "local-vllm.yaml"])
def test_the_local_examples_start_as_pp2_on_four_slots(tmp_path, name):
    deployment = read(tmp_path, (EXAMPLES / name).read_text())

    assert deployment.model().start.shape == "PP2"
    assert len(deployment.cluster.gpus) == 4
    assert deployment.limits.allowed_tp == (1, 2, 4)


@rows(
    ("before", "after", "said"),
    [
        ("precision: fp32, ", "", ""),
        (
            "precision: fp32",
            "precision: fp16",
            r"models\[0\]\.start: the torch engine keeps KV in fp32 or bf16 here.*write `precision: fp32`",
        ),
    ],
)
def test_a_precision_that_the_engine_does_not_compute_in_is_found_when_the_file_is_read(tmp_path, before, after, said):
    text = DEPLOYMENT.replace(before, after)
    assert text != DEPLOYMENT
    if said:
        assert re.search(said, refused(tmp_path / "wrong", text))
    else:
        assert read(tmp_path / "right", text).model().precision == "fp32"


@rows(
    ("start", "base"),
    [("pp2", "fp32"), ("'CPU[0]@bf16'", "bf16"), ("'CPU[0]@int8'", "bf16"), ("'CPU[0]:0-8@fp32,0-8=int8'", "fp32")],
)
def test_the_built_in_engine_keeps_activations_and_kv_as_it_starts(tmp_path, start, base):
    text = DEPLOYMENT.replace("start: pp2", f"start: {start}") + "engine: torch\n"
    found = capabilities(read(tmp_path / base, text).model())
    assert (found.base, found.precisions) == (base, (base, "int8", "int4"))


def test_vllm_divides_heads_evenly_or_names_the_degrees_that_do(tmp_path):
    text = DEPLOYMENT.replace("start: pp2", "start: 'CPU[0,1,2]'") + "engine: vllm\n"
    said = refused(tmp_path, text)
    assert (
        "models[0].start: vLLM divides a model evenly: TP 3 does not divide the 4 KV heads of counting; 1, 2, 4 do"
        in said
    )
    assert read(tmp_path, text.replace("engine: vllm", "engine: torch")).model().start.shape == "TP3"


def test_paths_are_relative_to_the_file(tmp_path):
    assert read(tmp_path).model().to_serve() == tmp_path / "counting"


def test_windows_become_definitions_and_have_their_own_workload(tmp_path):
    text = DEPLOYMENT.replace("{peak: always}", "{peak: {start: '09:00', end: '18:00', tz: Europe/Berlin}}")
    text = text.replace(
        "workload:", "workload:\n  peak: {rate_rps: 3, input_tokens: 1, output_tokens: 1, concurrency: 1}"
    )
    deployment = read(tmp_path, text)

    assert isinstance(deployment.windows["peak"], RecurringWindow)
    assert deployment.window_in_force(datetime(2026, 1, 5, 12, tzinfo=UTC)) == "peak"
    assert deployment.window_in_force(datetime(2026, 1, 5, 23, tzinfo=UTC)) == "always"
    assert deployment.model().workload_in("peak").rate_rps == 3
    assert deployment.model().workload_in("overnight").rate_rps == 0.8


def test_a_catalogue_knows_aliases_of_models_and_tenants(tmp_path):
    file = write_deployment(tmp_path, DEPLOYMENT + "tenants: [{name: acme, aliases: [acme corp]}]\n")
    catalogue = load(file).catalogue(datetime(2026, 1, 1, tzinfo=UTC))

    assert catalogue.aliases == {"counter": "counting", "acme corp": "acme"}
    assert catalogue.tenants == ("acme",)
    assert "peak" in catalogue.windows


NODE = "    - {name: local, link: {kind: shared-memory, bandwidth_gb_s: 5, latency_us: 30}, gpus: [{kind: CPU, memory_gb: 2}]}"


def test_a_node_may_say_how_fast_it_reads_weights(tmp_path):
    text = DEPLOYMENT.replace("gpus: [", "storage: {bandwidth_gb_s: 2.5}, gpus: [")
    (told,) = read(tmp_path, text).cluster.nodes
    (untold,) = read(tmp_path).cluster.nodes
    assert (told.storage_bytes_s, untold.storage_bytes_s) == (2.5e9, None)


@rows(
    ("old", "new", "said"),
    [
        ("latency_us", "latencyus", ":6: cluster.nodes[0].link.latencyus: "),
        ("latency_us", "latencyus", "did you mean 'latency_us'"),
        ("nodes:\n", f"nodes:\n{NODE}\n", ":7: cluster.nodes[1].name: a node called 'local' is there already"),
        ("kind: CPU", "kind: V100", ".kind: no figures for 'V100'; known are A10, A100"),
        ("gpus: [", "storage: {bandwidth_gb_s: 0}, gpus: [", "storage.bandwidth_gb_s: 0 is less"),
        ("gpus: [", "storage: {gb_s: 2}, gpus: [", "storage.gb_s: unknown key"),
        ("gpus: [", "storage: {bandwidth_gb_s: 1.0e-300}, gpus: [", "storage.bandwidth_gb_s: 1e-300 is less than the minimum"),
        ("count: 4", "count: 100000", "gpus[0].count: 100000 is greater than the maximum of 1024"),
        ("memory_gb: 1}", "memory_gb: 1.0e+300}", "memory_gb: 1e+300 is greater than the maximum"),
        ("always: {rate", "always: {burstiness: 1.0e+300, rate", "burstiness: 1e+300 is greater than the maximum of 100"),
        ("limits: {", "limits: {headroom: 99999999999999999999, ", "limits.headroom: 99999999999999999999 is greater"),
        ("limits: {", "limits: {max_sequences: 4000000000000000000000, ", "is greater than the maximum of 1000000"),
        ("apiVersion: intentctl/v1\n", "apiVersion: intentctl/v1\nnow: &a [*a]\n", "nested too deep, or something in it"),
        ("apiVersion: intentctl/v1\n", f"apiVersion: intentctl/v1\nnow: {'[' * 5000}\n", "nested too deep, or something in it"),
        ("count: 4", "count: 0", "cluster.nodes[0].gpus[0].count: 0 is less than the minimum of 1"),
        ("start: pp2", "start: pp5", "models[0].start: 1 free CPU"),
        ("start: pp2", "start: H100x2", "models[0].start: no H100 in the inventory; it has CPU"),
        ("start: pp2", "start: 'CPU[0,7]'", "models[0].start: device 7 is not in the inventory"),
        ("path: counting", "path: nowhere", "models[0].path: the checkpoint folder"),
        ("path: counting, ", "", "give either 'path' or 'config'"),
        ("path: counting", "path: counting, config: x.json", "give either 'path' or 'config'"),
        ("{peak: always}", "{peak: {start: '25:00', end: '26:00'}}", "windows.peak"),
        ("{peak: always}", "{peak: {start: '01:00', end: '02:00', tz: Mars}}", "windows.peak.tz: 'Mars' is no time zone"),
        ("always: {rate", "lunch: {rate", "workload.lunch: no such window"),
        ("kind: Deployment", "kind: Service", "kind: 'Deployment' was expected"),
        ("apiVersion: intentctl/v1\n", "", "the key 'apiVersion' is missing"),
        ("limits: {", "llm: {base_url: x, model: y}\nlimits: {", "llm.base_url"),
        ("limits: {", "profiles: {H100: a100-80gb}\nlimits: {", "profiles.H100: no H100 in the cluster"),
        ("limits: {", "kind: Deployment\nlimits: {", "the key 'kind' stands here for the second time"),
        ("cluster:", "cluster: [", "is not YAML"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_by_its_path(tmp_path, old, new, said):
    assert old in DEPLOYMENT
    assert said in refused(tmp_path, DEPLOYMENT.replace(old, new))


def test_who_approves_is_said_at_the_top_level(tmp_path):
    assert read(tmp_path).approval.by == "person"
    assert read(tmp_path, DEPLOYMENT + "approval: {by: nobody}\n").approval.by == "nobody"


def test_where_older_files_say_who_approves_is_read_with_a_warning(tmp_path, caplog):
    old = DEPLOYMENT.replace("limits: {", "limits: {approval: nobody, ")

    assert read(tmp_path, old).approval.by == "nobody"
    (warning,) = caplog.messages
    assert "deployment.yaml:" in warning
    assert "limits.approval: write `approval: {by: nobody}` at the top level instead" in warning
    with pytest.raises(DeploymentError, match=r"limits\.approval: is said twice"):
        read(tmp_path, old + "approval: {by: nobody}\n")


VLLM = """\
engine: vllm
vllm:
  options: {max_num_seqs: 16, compilation_config: {level: 0}}
  kv_cache_gb: 1.5
  staging_gb: 2
  path: follow
  standby: 0
"""


def test_what_is_not_said_of_vllm_has_its_default(tmp_path):
    assert read(tmp_path, DEPLOYMENT + "engine: vllm\n").model().engine.vllm == VllmSettings()
    assert read(tmp_path).model().engine.named is None


@rows(
    ("text", "said"),
    [
        (VLLM.replace("engine: vllm\n", ""), "deployment.yaml:14: vllm: the engine is torch; write `engine: vllm`"),
        (VLLM.replace("engine: vllm", "engine: torch"), "deployment.yaml:15: vllm: the engine is torch"),
        (VLLM.replace("engine: vllm", "engine: sglang"), "engine: 'sglang' is not one of ['torch', 'vllm']"),
        (VLLM.replace("follow", "drain"), "vllm.path: 'drain' is not one of"),
        (VLLM.replace("standby: 0", "standby: -1"), "deployment.yaml:20: vllm.standby: -1 is less than the minimum of 0"),
        (VLLM.replace("staging_gb: 2", "staging_gb: 0"), "vllm.staging_gb: 0 is less than or equal to the minimum of 0"),
        (VLLM.replace("staging_gb", "stagin_gb"), "vllm.stagin_gb: unknown key; did you mean 'staging_gb'"),
        (VLLM.replace("max_num_seqs", "max-num-seqs"), "vllm.options: 'max-num-seqs' does not match"),
        (VLLM.replace("kv_cache_gb: 1.5", "kv_cache_gb: much"), "vllm.kv_cache_gb: 'much' is not of type 'number'"),
    ],
)  # fmt: skip
def test_vllm_settings_that_cannot_be_are_refused_by_line_and_path(tmp_path, text, said):
    assert said in refused(tmp_path, DEPLOYMENT + text)


@rows(
    ("content", "said"),
    [
        (None, "does not exist"),
        ("{", "cannot be read"),
        ("[]", "not a JSON object"),
        (json.dumps(CONFIG).replace("Qwen3ForCausalLM", "GPT2LMHeadModel"),
         r"models\[0\]\.path: .*GPT2LMHeadModel is not supported; supported are Llama"),
        ('{"architectures": ["LlamaForCausalLM"]}', "config.json has no"),
    ],
)  # fmt: skip
def test_a_broken_checkpoint_config_is_named(tmp_path, content, said):
    file = write_deployment(tmp_path)
    config = tmp_path / "counting" / "config.json"
    if content is None:
        config.unlink()
    else:
        config.write_text(content)

    with pytest.raises(DeploymentError, match=said):
        load(file)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DeploymentError, match="no such file"):
        load(tmp_path / "nowhere.yaml")


def test_several_machines_are_planned_for_and_not_served(tmp_path):
    node = "{name: other, link: {kind: pcie, bandwidth_gb_s: 25, latency_us: 10}, gpus: [{kind: CPU, count: 1, memory_gb: 1}]}"
    network = "  network: {kind: network, bandwidth_gb_s: 10, latency_us: 50}\n"
    text = DEPLOYMENT.replace("  nodes:\n", f"{network}  nodes:\n    - {node}\n", 1)
    deployment = read(tmp_path, text.replace("start: pp2", ""))

    with pytest.raises(RefusedError, match="other, local can be planned for together but not served"):
        deployment.refuse_unless_served()


OTHER = """
    - name: other
      link: {kind: pcie, bandwidth_gb_s: 25, latency_us: 10}
      gpus: [{kind: CPU, count: 1, memory_gb: 1}]
"""
NETWORK = "  network: {kind: network, bandwidth_gb_s: 10, latency_us: 50}\n"
TWO = DEPLOYMENT.replace("  nodes:\n", f"{NETWORK}  nodes:{OTHER}", 1).replace("start: pp2", "")


def test_a_node_with_an_agent_is_served_from_another_and_nothing_spans_both(tmp_path):
    deployment = read(tmp_path, TWO + "hosts: {other: {agent: '[::1]:7443'}}\n")
    deployment.refuse_unless_served()
    assert deployment.agents == {"other": ("::1", 7443)}
    assert deployment.cluster.network is None
    assert deployment.cluster.between == Link("network", 10e9, pytest.approx(50e-6))
    assert deployment.model().cluster.between == deployment.cluster.between
    assert deployment.certificates.suffix == ".hosts"


def test_the_example_of_two_hosts_can_be_served_with_a_model_on_each():
    deployment = load(EXAMPLES / "two-hosts.yaml")
    deployment.refuse_unless_served()
    assert deployment.agents == {"b": ("127.0.0.1", 7443)}
    assert [node.name for node in deployment.cluster.nodes for _ in node.gpus] == ["a", "a", "b", "b"]
    may_use = {model.name: [gpu.index for gpu in model.cluster.gpus] for model in deployment.models}
    assert may_use == {"counting": [1, 2, 3], "counting-llama": [0]}
    assert {model.name: model.start.devices for model in deployment.models if model.start} == {
        "counting": (2, 3),
        "counting-llama": (0,),
    }


def test_with_ray_every_node_has_an_agent_but_those_by_hand_keep_their_own(tmp_path):
    deployment = read(tmp_path, TWO + "hosts: {local: {agent: 'l:7443'}, ray: '10.0.0.1:6379'}\n")
    deployment.refuse_unless_served()
    assert (deployment.agents, deployment.ray) == ({"other": None, "local": ("l", 7443)}, "10.0.0.1:6379")
    assert deployment.cluster.network is None
    named = TWO.replace("name: other", "name: Other_1")
    assert "cluster.nodes[0].name" in refused(tmp_path, f"{named}hosts: {{ray: 'h:1'}}\n")


HOSTS = {
    "no node": ("{b: {agent: 'b:1'}}", "hosts.b: no node 'b' in the cluster; it has other, local"),
    "the agent of another": (
        "{other: {agent: 'b:1'}, local: {agent: 'b:1'}}",
        "hosts.local.agent: b:1 is another host's agent already",
    ),
    "two of one name": ("{other: {agent: 'b:1'}, other: {agent: 'c:1'}}", "other"),
    "no port": ("{other: {agent: b}}", "hosts.other.agent"),
    "no name for a certificate": ("{Other_1: {agent: 'b:1'}}", "hosts"),
    "no agent": ("{other: {}}", "hosts.other"),
    "no port of Ray": ("{ray: head}", "hosts.ray"),
    "a host named ray": ("{ray: {agent: 'b:1'}}", "hosts.ray"),
}


@rows("hosts, said", HOSTS.values(), ids=list(HOSTS))
def test_hosts_that_cannot_be_are_refused_by_their_path(tmp_path, hosts, said):
    assert said in refused(tmp_path, f"{TWO}hosts: {hosts}\n")


def test_a_start_that_does_not_fit_is_refused(tmp_path):
    config = EXAMPLES / "llama-3-70b" / "config.json"
    text = (EXAMPLES / "a100-l40s.yaml").read_text().replace("llama-3-70b/config.json", str(config))
    said = refused(tmp_path, text.replace("start: L40Sx4", "start: L40Sx1"))
    assert re.search(r"yaml:\d+: models\[0\].start: L40S\[4\].* does not fit: 141 GB of weights leave", said)


@rows("approval", ["", "approval: {by: person}\n", "approval: {by: nobody, within: {per_hour: 1}}\n"])
def test_a_controller_that_may_apply_nothing_cannot_act(tmp_path, approval):
    said = refused(tmp_path, f"{DEPLOYMENT}{approval}mode: act\n")
    assert "mode: the controller may apply nothing: say what under" in said
    assert read(tmp_path, f"{DEPLOYMENT}{approval}mode: recommend\n").mode == "recommend"


@rows(
    ("said", "limits", "wrong"),
    [
        ("max_utilisation: 0.7, headroom: 0, usual_tpot_s: 0.1", (0.7, 0, 0.1), ""),
        ("max_utilisation: 0", None, "limits.max_utilisation: 0 is less than or equal to the minimum of 0"),
        ("max_utilisation: 1.2", None, "limits.max_utilisation: 1.2 is greater than the maximum of 1"),
        ("headroom: -1", None, "limits.headroom: -1 is less than the minimum of 0"),
        ("usual_tpot_s: 0", None, "limits.usual_tpot_s: 0 is less than or equal to the minimum of 0"),
    ],
)
def test_the_headroom_of_plans_is_a_setting(tmp_path, said, limits, wrong):
    text = DEPLOYMENT.replace("limits: {", f"limits: {{{said}, ")
    if wrong:
        assert wrong in refused(tmp_path, text)
    else:
        found = read(tmp_path, text).limits
        assert (found.max_utilisation, found.headroom, found.usual_tpot_s) == limits


def loaded(folder, load):
    """The load of a deployment whose model holds 16384 tokens."""
    return read(folder, DEPLOYMENT.replace(USUAL_LOAD, load)).model().workload_in("always")


USUAL_LOAD = "{rate_rps: 0.8, input_tokens: {mean: 20, p95: 20}, output_tokens: {mean: 900, p95: 900}, concurrency: 8}"


def test_a_load_of_means_is_as_uneven_as_public_chat_and_says_so(tmp_path):
    load = loaded(tmp_path, "{rate_rps: 2, input_tokens: 800, output_tokens: 250}")
    assert load == Workload(2, 800, 250, 1, CHAT_INPUTS, CHAT_OUTPUTS, 1.0, 0.0)
    assert {load.inputs.source, load.outputs.source} == {"public chat (Azure 2023)"}


def test_a_load_says_its_spreads_bursts_and_prefix_hits(tmp_path):
    load = loaded(
        tmp_path,
        "{rate_rps: 2, input_tokens: {mean: 800, p95: 2000}, output_tokens: {histogram: {100: 0.5, 500: 0.497}}, "
        "burstiness: 2.5, prefix_hit: 0.4}",
    )
    assert (load.input_tokens, load.inputs) == (800, Spread(2.5))
    assert (load.output_tokens, load.outputs.source) == (299, "the file")
    assert list(load.outputs.histogram) == [
        (pytest.approx(100 / 299.4, rel=1e-3), pytest.approx(0.5015, rel=1e-3)),
        (pytest.approx(500 / 299.4, rel=1e-3), pytest.approx(0.4985, rel=1e-3)),
    ]
    assert load.outputs.p95_by_mean == pytest.approx(500 / 299.4, rel=1e-3)
    assert (load.burstiness, load.prefix_hit) == (2.5, 0.4)


def test_a_load_may_be_that_of_a_trace_and_what_is_said_beside_it_goes_before(tmp_path):
    trace = "arrival_s,input_tokens,output_tokens\n" + "".join(f"{n / 2},{100 + n},50\n" for n in range(101))
    (tmp_path / "chat.csv").write_text(trace)
    load = loaded(tmp_path, "{trace: chat.csv}")
    assert (load.rate_rps, load.input_tokens, load.output_tokens, load.concurrency) == (2.0, 150, 50, 5)
    assert (load.inputs.source, len(load.inputs.histogram)) == ("trace chat.csv", 12)

    said = loaded(
        tmp_path, "{trace: chat.csv, rate_rps: 4, output_tokens: {mean: 60, p95: 90}, input_tokens: 300, burstiness: 3}"
    )
    assert (said.rate_rps, said.input_tokens, said.output_tokens, said.burstiness) == (4, 300, 60, 3)
    assert (said.inputs, said.outputs) == (load.inputs, Spread(1.5))


@rows(
    ("load", "said"),
    [
        ("{rate_rps: 2, input_tokens: 9}", "workload.always: the key 'output_tokens' is missing; say it, or name a trace"),
        ("{rate_rps: 2, input_tokens: 9, output_tokens: {histogram: {1: 0.5, 2: 0.4}}}",
         "workload.always.output_tokens.histogram: the shares sum to 0.9; they have to sum to 1"),
        ("{rate_rps: 2, input_tokens: 9, output_tokens: {histogram: {none: 1}}}", "output_tokens.histogram.none: a length is a"),
        ("{rate_rps: 2, input_tokens: 9, output_tokens: {histogram: {0: 1}}}", "output_tokens.histogram[0]: a length is a"),
        ("{rate_rps: 2, input_tokens: 9, output_tokens: {histogram: {99999: 1}}}",
         "workload.always.output_tokens: 99999 tokens are more than the 16384 that counting holds"),
        ("{rate_rps: 2, input_tokens: {mean: 9, p95: 8}, output_tokens: 9}",
         "workload.always.input_tokens.p95: 8 is below the mean of 9"),
        ("{rate_rps: 2, input_tokens: {mean: 9, p95: 35}, output_tokens: 9}",
         "input_tokens.p95: 35 is over 3.87 times the mean, which no lognormal distribution has"),
        ("{rate_rps: 2, input_tokens: {mean: 9000, p95: 17000}, output_tokens: 9}",
         "input_tokens: 17000 tokens are more than the 16384"),
        ("{rate_rps: 2, input_tokens: 9000, output_tokens: 9000}",
         "workload.always.input_tokens: 18000 tokens are more than the"),
        ("{rate_rps: 2, input_tokens: {mean: 9}, output_tokens: 9}", "input_tokens: write a number, {mean, p95} or {histogram}"),
        ("{rate_rps: 2, input_tokens: {mean: 9, p95: 9, histogram: {1: 1}}, output_tokens: 9}", "write a number, {mean, p95}"),
        ("{rate_rps: 2, input_tokens: {men: 9}, output_tokens: 9}", "input_tokens.men: unknown key; did you mean 'mean'?"),
        ("{rate_rps: 2, input_tokens: 9, output_tokens: 9, burstiness: 0}", "workload.always.burstiness: 0 is less than"),
        ("{rate_rps: 2, input_tokens: 9, output_tokens: 9, prefix_hit: 1}", "workload.always.prefix_hit: 1 is greater than"),
        ("{trace: nowhere.csv}", "workload.always.trace: "),
        ("{trace: counting/config.json}", "workload.always.trace: config.json: not one readable request"),
        ("{trace: once.csv}", "workload.always.trace: its requests come at one moment; say rate_rps"),
        ("{trace: long.csv}", "workload.always.trace: 25000 tokens are more than"),
    ],
)  # fmt: skip
def test_a_load_that_cannot_be_is_refused_by_its_path(tmp_path, load, said):
    head = "arrival_s,input_tokens,output_tokens\n"
    (tmp_path / "once.csv").write_text(f"{head}1,10,10\n")
    (tmp_path / "long.csv").write_text(f"{head}1,16000,9000\n2,16000,9000\n")
    message = refused(tmp_path, DEPLOYMENT.replace(USUAL_LOAD, load))
    assert said in message
    assert message.startswith(f"{tmp_path / 'deployment.yaml'}:12: ")
