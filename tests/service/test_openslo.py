"""OpenSLO at the edge of the service: the metrics are those of the engine that the deployment is served by."""

from service import api
from service import documents as docs
from service.api.context import Offline
from tests.rows import rows
from tests.service.scripted import DEPLOYMENT, read


@rows(
    ("engine", "histogram"),
    [
        ("", "intentctl_ttft_seconds"),
        ("engine: torch\n", "intentctl_ttft_seconds"),
        ("engine: vllm\n", "vllm:time_to_first_token_seconds"),
    ],
)
def test_an_slo_names_the_metrics_of_the_engine_that_serves(tmp_path, engine, histogram):
    carry_out = Offline(read(tmp_path, DEPLOYMENT + engine))
    answer = carry_out(api.openslo.export_openslo, docs.WishRequest(text="p99 TTFT under 2.5 s"))
    back = carry_out(api.openslo.import_openslo, docs.ImportRequest(documents=list(answer.slos)))

    assert f"{histogram}_bucket" in str(answer.slos[0]["spec"]["indicator"])
    assert back.intent.goals[0].value == 2.5
