"""OpenSLO at the edge of the service: the metrics are those of the engine that the deployment is served by."""

from datetime import UTC, datetime

from service import openslo, usecases
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
    deployment = read(tmp_path, DEPLOYMENT + engine)
    now = datetime(2026, 1, 5, 11, tzinfo=UTC)
    intent = usecases.translate("p99 TTFT under 2.5 s", deployment, None, now)
    answer = openslo.exported(intent, deployment)
    back = openslo.imported(answer.slos, deployment, now)

    assert f"{histogram}_bucket" in str(answer.slos[0]["spec"]["indicator"])
    assert back.intent.goals[0].value == 2.5
