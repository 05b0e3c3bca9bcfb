"""A tiny random model that has a token for every byte, a chat template, and a liking for digits.

In: a folder. Out: a Hugging Face folder of 0.4 M weights. For tests whose questions the testnet's own model has no
tokens for: what it answers is noise, of which digits and an early end make the most.
"""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers

from protocol.weights import ModelConfig, save_checkpoint

EOS_ID = 0
CHAT_TEMPLATE = (
    "{% for message in messages %}<{{ message.role }}> {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant> {% endif %}"
)
LIKING, RESERVE = 6.0, -6.0
"""Added to the logits of digits and of the end, and to all others'."""


def make_bytes_tokenizer() -> Backend:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Backend(models.BPE(vocab={letter: place for place, letter in enumerate(["<end>", *letters])}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<end>"])
    return backend


def save_bytes_model(folder: Path, seed: int = 0) -> None:
    tokenizer = make_bytes_tokenizer()
    config = ModelConfig(
        model_type="llama",
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=8192,
        eos_token_id=EOS_ID,
    )
    generator = torch.Generator().manual_seed(seed)
    weights = {
        name: torch.ones(shape) if "norm" in name else torch.randn(shape, generator=generator) * 0.05
        for name, shape in config.weight_shapes().items()
    }
    _prefer_digits(weights, tokenizer)
    save_checkpoint(folder, config, {name: weight.to(torch.bfloat16) for name, weight in weights.items()})
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE)


def _prefer_digits(weights: dict[str, torch.Tensor], tokenizer: Backend) -> None:
    """The first coordinate is large in every hidden state: the head's first column is then a bias."""
    weights["model.embed_tokens.weight"][:, 0] = 4.0
    head = weights["lm_head.weight"]
    head[:, 0] = RESERVE / 10
    liked = [tokenizer.token_to_id(digit) for digit in "0123456789"] + [EOS_ID]
    head[liked, 0] = LIKING / 10
    head[EOS_ID, 0] += 0.2
