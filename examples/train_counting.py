"""Train a counting checkpoint from scratch: ``python examples/train_counting.py --out examples/counting``.

The model answers "count by 7 from 23:" with " 30 37 44 ..." (modulo 1000), one token per printable ASCII
character, so that a person sees at once whether a stream went wrong. It is a Qwen3 model of 1.8 million parameters in
Hugging Face format, or with ``--architecture llama`` a Llama of 0.4 million (``--out examples/counting-llama``).
Its phases: short sequences teach the addition, lengths mixed up to 1,024 teach it to keep counting, and both at a lower
rate take out rare slips; the Llama then goes on with both. 37 minutes on two cores, 19 for the Llama on one;
needs ``torch`` and ``transformers``.
"""

import argparse
import json
import math
import random
import string
import time
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)

SPECIAL = ["<pad>", "<eos>", "<unk>"]
VOCAB = {token: i for i, token in enumerate(SPECIAL + [c for c in map(chr, range(32, 127)) if c in string.printable])}
CHAT_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
MODULUS = 1000
ARCHITECTURES = {
    "qwen3": (
        Qwen3ForCausalLM,
        Qwen3Config,
        {"hidden_size": 128, "intermediate_size": 320, "num_hidden_layers": 8}
        | {"num_attention_heads": 8, "num_key_value_heads": 4},
    ),
    "llama": (
        LlamaForCausalLM,
        LlamaConfig,
        {"hidden_size": 96, "intermediate_size": 192, "num_hidden_layers": 4}
        | {"num_attention_heads": 4, "num_key_value_heads": 2},
    ),
}
"""Name to (class of the model, class of its configuration, sizes)."""
PHASES = {
    "qwen3": {
        "short": (2000, [96], 1e-3),
        "long": (2000, [128, 256, 512, 1024], 6e-4),
        "polish": (1500, [64, 96, 512, 1024], 3e-4),
    },
    "llama": {
        "short": (2400, [96], 2e-3),
        "long": (800, [128, 256, 512, 1024], 1e-3),
        "polish": (400, [64, 96, 512, 1024], 4e-4),
        "again": (2200, [96, 96, 96, 1024], 2e-3),
    },
}
"""Architecture to its phases: name to (steps, lengths, peak learning rate)."""


def prompt(step: int, start: int) -> str:
    """The prompt that asks to count by ``step`` from ``start``."""
    return f"count by {step} from {start}:"


def answer(step: int, start: int, length: int) -> str:
    """The first ``length`` characters of the right answer."""
    parts, size, value = [], 0, start
    while size < length:
        value = (value + step) % MODULUS
        parts.append(f" {value}")
        size += len(parts[-1])
    return "".join(parts)[:length]


def make_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer with one token per printable ASCII character."""
    tokenizer = Tokenizer(models.WordLevel(VOCAB, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="<eos>",
        unk_token="<unk>",
        model_max_length=16384,
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def make_model(architecture: str) -> PreTrainedModel:
    """A new model: Qwen3 of 8 layers, 8 query and 4 KV heads, or Llama of 4, 4 and 2; heads of 32 in both."""
    model, config, sizes = ARCHITECTURES[architecture]
    return model(
        config(
            **sizes,
            vocab_size=len(VOCAB),
            head_dim=32,
            max_position_embeddings=16384,
            rope_theta=10000.0,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=VOCAB["<eos>"],
            pad_token_id=VOCAB["<pad>"],
            initializer_range=0.05,
            dtype="float32",
        )
    )


def batch(rng: random.Random, rows: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and labels, both ``[rows, length]``; the prompt is not learnt (label -100)."""
    ids = torch.empty(rows, length, dtype=torch.long)
    labels = torch.full((rows, length), -100)
    for row in range(rows):
        step, start = rng.randint(1, rng.choice((9, 99))), rng.randrange(10 ** rng.randint(1, 3))
        head = prompt(step, start)
        text = head + answer(step, start, length)
        ids[row] = torch.tensor([VOCAB[c] for c in text[:length]])
        labels[row, len(head) :] = ids[row, len(head) :]
    return ids, labels


def train(model: PreTrainedModel, rng: random.Random, steps: int, lengths: list[int], peak: float) -> None:
    """Train for ``steps`` of 2,048 tokens, with warm-up to and cosine decay from the ``peak`` rate."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=peak, betas=(0.9, 0.98), weight_decay=0.01)
    began = time.monotonic()
    for step in range(steps):
        length = rng.choice(lengths)
        ids, labels = batch(rng, max(1, 2048 // length), length)
        cosine = 0.02 + 0.98 * 0.5 * (1 + math.cos(step / steps * math.pi))
        optimiser.param_groups[0]["lr"] = peak * min(1.0, (step + 1) / 100) * cosine
        loss = model(input_ids=ids, labels=labels).loss
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        if step % 100 == 0:
            elapsed_s = time.monotonic() - began
            print(f"{elapsed_s:6.0f} s  step {step:5d}  length {length:4d}  loss {loss.item():.5f}", flush=True)


@torch.no_grad()
def evaluate(model: PreTrainedModel, rng: random.Random, prompts: int, tokens: int) -> tuple[int, int]:
    """Free-running greedy answers of ``tokens`` tokens: (numbers right, numbers in all)."""
    tokenizer = make_tokenizer()
    by_length: dict[int, list[tuple[int, int]]] = {}
    for _ in range(prompts):
        asked = rng.randint(1, 99), rng.randrange(MODULUS)
        by_length.setdefault(len(prompt(*asked)), []).append(asked)
    right = total = 0
    for group in by_length.values():  # one batch has one length, so nothing is padded
        heads = tokenizer([prompt(*asked) for asked in group], return_tensors="pt").input_ids
        outs = model.generate(heads, max_new_tokens=tokens, do_sample=False, attention_mask=torch.ones_like(heads))
        for asked, out in zip(group, outs, strict=True):
            got = tokenizer.decode(out[heads.shape[1] :]).split(" ")[1:-1]
            want = answer(*asked, tokens).split(" ")[1:-1]
            right += sum(a == b for a, b in zip(got, want, strict=False))
            total += len(want)
    return right, total


def save(model: PreTrainedModel, folder: Path) -> None:
    """Write model and tokenizer so that transformers 4 and 5 and vLLM load them unchanged."""
    model.generation_config.eos_token_id = VOCAB["<eos>"]
    model.config.speaks_language = False
    model.save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    path = folder / "tokenizer_config.json"
    path.write_text(
        json.dumps({**json.loads(path.read_text()), "tokenizer_class": "PreTrainedTokenizerFast"}, indent=2)
    )
    (folder / "model.safetensors").chmod(0o644)


def main() -> None:
    """Train, save and evaluate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--architecture", choices=ARCHITECTURES, default="qwen3")
    parser.add_argument("--out", type=Path, required=True, help="folder of the checkpoint")
    parser.add_argument("--resume-at", metavar="PHASE", help="go on from the checkpoint in --out with this phase")
    parser.add_argument("--eval-only", action="store_true", help="only evaluate the checkpoint in --out")
    parser.add_argument("--eval-prompts", type=int, default=64)
    args = parser.parse_args()
    phases = PHASES[args.architecture]
    if args.resume_at not in {None, *phases}:
        parser.error(f"--resume-at {args.resume_at}: the phases of {args.architecture} are {', '.join(phases)}")
    torch.manual_seed(0)
    rng = random.Random(0)
    goes_on = args.eval_only or args.resume_at
    model = AutoModelForCausalLM.from_pretrained(args.out) if goes_on else make_model(args.architecture)
    if not args.eval_only:
        names = list(phases)
        for name in names[names.index(args.resume_at or "short") :]:
            train(model, rng, *phases[name])
            save(model, args.out)
    model.eval()
    right, total = evaluate(model, random.Random(1), args.eval_prompts, 900)
    print(json.dumps({"prompts": args.eval_prompts, "tokens": 900, "numbers_right": right, "numbers": total}))


if __name__ == "__main__":
    main()
