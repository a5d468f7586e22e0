from hypothesis import given
from hypothesis import strategies as st

from intent.openslo.export import BUCKET, COUNT, QUANTILE, matchers, quoted, tight, values_of
from tests.rows import rows

NAMES = st.text(min_size=1)


@given(NAMES, NAMES)
def test_values_come_back_from_their_quotation_marks(first, second):
    said = f"model_name={quoted(first)},le={quoted(second)}"
    assert matchers(said, {"model_name", "le"}) == {"model_name": first, "le": second}
    assert values_of("le", f"up{{{said}}}") >= {second}


@given(NAMES)
def test_spaces_within_quotation_marks_stay(name):
    assert tight(f" up {{ a = {quoted(name)} }} ") == f"up{{a={quoted(name)}}}"


@rows("said", ['a!="x"', 'a=~"x"', 'b="x"', 'a="x",a="y"', "a=x", 'a="x', ",", 'a="x";'])
def test_other_matchers_are_none(said):
    assert matchers(said, {"a"}) is None


def test_no_matchers_are_no_labels():
    assert matchers(None, ()) == matchers("", ()) == {}


@rows(
    ("form", "query"),
    [
        (BUCKET, 'sum(rate(x_bucket{le="1"}[5m]))'),
        (BUCKET, 'sum(increase(x_bucket{le="}"}[1h]))'),
        (COUNT, "sum(rate(x_count[5m]))"),
        (COUNT, 'sum(rate(x_bucket{le="+Inf"}[5m]))'),
        (QUANTILE, "histogram_quantile(0.99,sumby(le)(rate(a:x_bucket[5m])))"),
        (QUANTILE, "histogram_quantile(0.5,sum(rate(x_bucket[5m]))by(le))"),
    ],
)
def test_a_form_is_recognised_whole(form, query):
    assert form.fullmatch(query)
    assert not form.fullmatch(f"{query}+1")
    assert not form.fullmatch(f"1-{query}")
