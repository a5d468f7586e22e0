"""What the OpenAI API says at temperature 1 is drawn from the model: flat logits over 1,000 ids, 20,000 draws."""

import asyncio
from pathlib import Path

import httpx
import numpy as np
import pytest
import tokenizers
import torch

from runtime.models import Cluster, Gpu, Link, Node, uniform
from runtime.router import Router
from runtime.tokenizer import Tokenizer
from runtime.torch_engine.engine import TorchEngine
from runtime.torch_engine.models import EngineSettings
from service.openai.api import Endpoint, openai_app
from tests.runtime.torch_engine.worker.test_sampler import CLASSES, IDS, chances, classes_of
from tests.service.open_door import behind_open_door

FIRST = 0x4E00
"""Each id is one character from here on."""
LENGTH, REQUESTS = 100, 200
SHAPE = {
    "vocab_size": IDS, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 256, "tie_word_embeddings": False,
    "pad_token_id": None, "bos_token_id": None, "eos_token_id": None,
}  # fmt: skip


@pytest.fixture(scope="module")
def flat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint to which all ids are alike."""
    folder = tmp_path_factory.mktemp("flat")
    import transformers

    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SHAPE))
    torch.nn.init.zeros_(model.lm_head.weight)
    model.save_pretrained(folder)
    words = {chr(FIRST + number): number for number in range(IDS)}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token=chr(FIRST)))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    made.decoder = tokenizers.decoders.Fuse()
    made.save(str(folder / "tokenizer.json"))
    return folder


@pytest.mark.slow
async def test_what_the_api_says_is_drawn_from_the_model(flat: Path) -> None:
    cluster = Cluster((Node("n", (Gpu(0, "CPU", 1 << 30),), Link("shared-memory", 5e9, 1e-5)),))
    settings = EngineSettings(max_running=50, closing_batch_tokens=64, max_batch_tokens=256)
    engine = await TorchEngine.start(flat, uniform(cluster, "CPU", 1, 1, 1, "fp32"), cluster, settings)
    async with Router(engine, Tokenizer.load(flat)) as router:
        app = behind_open_door(openai_app({"m": Endpoint(router, context_tokens=250, vocab_size=IDS)}))
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://localhost", timeout=120
        ) as client:

            async def said(seed: int) -> str:
                asked = {"model": "m", "prompt": chr(FIRST), "max_tokens": LENGTH, "temperature": 1}
                answer = await client.post("/completions", json=asked | {"seed": seed})
                assert answer.status_code == 200, answer.text
                text: str = answer.json()["choices"][0]["text"]
                return text

            texts = await asyncio.gather(*map(said, range(REQUESTS)))
    await engine.close()
    drawn = np.array([ord(character) - FIRST for text in texts for character in text])
    assert len(drawn) == LENGTH * REQUESTS
    classes, masses = classes_of(torch.full((IDS,), 1 / IDS))
    assert len({*classes}) == CLASSES
    assert min(chances(drawn, classes, masses).values()) > 1e-4
