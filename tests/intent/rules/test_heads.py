from intent.rules.clauses import clauses
from intent.rules.heads import heads_of, unknown_head
from intent.rules.phrasing import tokenize
from tests.rows import rows


def clause_of(text, catalogue):
    (clause,) = clauses(tokenize(text, catalogue))
    return clause


@rows(
    ("text", "heads"),
    [
        ("TTFT < 2s", ["ttft"]),
        ("TTFT and TPOT < 2s", ["ttft", "tpot"]),
        ("latency TTFT < 2s", ["ttft"]),
        ("token throughput, throughput above 5 tok/s", ["throughput_tok"]),
        ("首字延迟 TTFT 不超过 2 秒", ["ttft"]),
        ("tp 2", ["tp"]),
        ("4 GPUs", ["gpu_count"]),
        ("GPU utilisation of the GPUs above 70%", ["gpu_util"]),
        ("TTFT on the GPUs < 2s", ["ttft"]),
        ("at least 500 tok/s", ["throughput_tok"]),
        ("50 req/s", ["throughput_req"]),
        ("30 ms per token", ["tpot"]),
        ("20 tokens/s per user", ["tpot"]),
        ("under $4/h", ["cost"]),
        ("under $4", ["cost"]),
        ("40 元以内", ["cost"]),
        ("between $4/h and $5/h", ["cost"]),
        ("as cheap as possible", ["cost"]),
        ("越便宜越好", ["cost"]),
        ("as many tokens per second as possible", ["throughput_tok"]),
        ("maximise requests an hour", ["throughput_req"]),
        ("GPU cost under $4/h", ["cost"]),
        ("GPUs under $4/h", ["cost"]),
        ("under 2s", []),
        ("above 80%", []),
    ],
)
def test_a_clause_is_about_the_metric_it_names_or_the_one_its_unit_gives_away(text, heads, catalogue):
    assert [head.value for head in heads_of(clause_of(text, catalogue))] == heads


@rows(
    ("text", "said"),
    [
        ("keep the vibes under 2s", "vibes"),
        ("keep the good vibes-score under 2s", "good vibes-score"),
        ("vibes<2s", "vibes"),
        ("under 2s vibes", None),
        ("TTFT < 2s", None),
        ("§ under 2s", None),
    ],
)
def test_unknown_words_in_front_of_a_bound_stand_where_a_metric_should(text, said, catalogue):
    found = [text[token.start : token.end] for token in unknown_head(clause_of(text, catalogue))]
    assert found == ([said] if said else [])
