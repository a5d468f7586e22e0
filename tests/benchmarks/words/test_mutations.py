import random

from benchmarks.words.mutations import hostile

TEXTS = ("keep P99 TTFT < 2s at peak", "高峰期首字延迟不超过 2 秒")


def strings(count, seed=0, texts=TEXTS):
    chance = random.Random(seed)
    return [hostile(chance, texts) for _ in range(count)]


def test_strings_are_the_same_for_a_seed_and_differ_from_what_was_said():
    assert strings(50, seed=3) == strings(50, seed=3)
    assert strings(50, seed=3) != strings(50, seed=4)
    found = strings(500)
    assert len(set(found) - set(TEXTS)) > 400
    assert all(text.encode("utf-8").decode("utf-8") == text for text in found)
    found = strings(2000)
    assert any("1e400" in text for text in found)
    assert any("\u202e" in text for text in found)
    assert any(text.isupper() for text in found)
    assert any(set(text.split()) == set(TEXTS[0].split()) and text != TEXTS[0] for text in found)
    assert len(strings(200, texts=("",))) == 200
