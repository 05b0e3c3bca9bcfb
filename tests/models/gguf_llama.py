"""A Llama model in a GGUF file, as Hugging Face knows it: configuration, bf16 weights, tokenizer.

In: a GGUF file of Llama architecture with a byte-level BPE vocabulary (any quantisation that `gguf` can undo).
Out: `ModelConfig`, weights under Hugging Face names, and the tokenizer's documents. GGUF's format:
https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGUFReader, dequantize
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Backend
from torch import Tensor

from protocol.errors import MalformedFile
from protocol.weights import ModelConfig

CONTROL_TOKEN = 3
"""GGUF's token type of `<|im_start|>` and its like."""

OUTER_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
LAYER_NAMES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_norm": "input_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_norm": "post_attention_layernorm",
}


class GgufLlama:
    """Example: `GgufLlama(path).weights()["model.norm.weight"]`. Raises MalformedFile for another architecture."""

    def __init__(self, path: Path) -> None:
        self._reader = GGUFReader(path)
        self._require("general.architecture", "llama")
        self._require("tokenizer.ggml.model", "gpt2")

    def config(self) -> ModelConfig:
        tied = all(tensor.name != "output.weight" for tensor in self._reader.tensors)
        return ModelConfig(
            model_type="llama",
            vocab_size=len(self._field("tokenizer.ggml.tokens")),
            hidden_size=self._field("llama.embedding_length"),
            intermediate_size=self._field("llama.feed_forward_length"),
            num_hidden_layers=self._field("llama.block_count"),
            num_attention_heads=self._field("llama.attention.head_count"),
            num_key_value_heads=self._field("llama.attention.head_count_kv"),
            head_dim=self._field("llama.rope.dimension_count"),
            max_position_embeddings=self._field("llama.context_length"),
            rms_norm_eps=_short(self._field("llama.attention.layer_norm_rms_epsilon")),
            rope_theta=_short(self._field("llama.rope.freq_base")),
            tie_word_embeddings=tied,
            bos_token_id=self._field("tokenizer.ggml.bos_token_id"),
            eos_token_id=self._field("tokenizer.ggml.eos_token_id"),
            pad_token_id=self._field("tokenizer.ggml.padding_token_id"),
        )

    def weights(self) -> dict[str, Tensor]:
        """Every tensor, dequantised and rounded to bf16."""
        config, weights = self.config(), {}
        heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
        for tensor in self._reader.tensors:
            *layer, kind, _ = tensor.name.split(".")
            wide = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy())
            name = f"model.layers.{layer[1]}.{LAYER_NAMES[kind]}" if layer else OUTER_NAMES[kind]
            weights[f"{name}.weight"] = (_unpermuted(wide, heads[kind]) if kind in heads else wide).bfloat16()
        return weights

    def tokenizer(self) -> Backend:
        """Byte-level BPE with single digits: what GGUF calls the pre-tokenizer "smollm"."""
        self._require("tokenizer.ggml.pre", "smollm")
        tokens, kinds = self._field("tokenizer.ggml.tokens"), self._field("tokenizer.ggml.token_type")
        merges = [tuple(merge.split(" ")) for merge in self._field("tokenizer.ggml.merges")]
        backend = Backend(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
        digits, byte_level = pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)
        backend.pre_tokenizer = pre_tokenizers.Sequence([digits, byte_level])
        backend.decoder = decoders.ByteLevel()
        control = [token for token, kind in zip(tokens, kinds, strict=True) if kind == CONTROL_TOKEN]
        backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
        return backend

    def tokenizer_config(self) -> dict[str, Any]:
        """What transformers wants beside tokenizer.json, the chat template above all."""
        tokens, config = self._field("tokenizer.ggml.tokens"), self.config()
        ids = {"bos": config.bos_token_id, "eos": config.eos_token_id, "pad": config.pad_token_id}
        return {
            "tokenizer_class": "PreTrainedTokenizerFast",
            **{f"{kind}_token": tokens[token_id] for kind, token_id in ids.items()},
            "model_max_length": config.max_position_embeddings,
            "clean_up_tokenization_spaces": False,
            "chat_template": self._field("tokenizer.chat_template"),
        }

    def _field(self, name: str) -> Any:
        field = self._reader.get_field(name)
        if field is None:
            raise MalformedFile("the GGUF file lacks a field", name)
        return field.contents()

    def _require(self, name: str, wanted: str) -> None:
        if self._field(name) != wanted:
            raise MalformedFile("the GGUF file is of another kind", f"{name} is {self._field(name)!r}, not {wanted!r}")


def _unpermuted(weight: Tensor, num_heads: int) -> Tensor:
    """GGUF interleaves the rotated halves of each head of q and k; Hugging Face keeps one after the other."""
    pairs = weight.view(num_heads, -1, 2, weight.shape[1])
    return pairs.transpose(1, 2).reshape(weight.shape)


def _short(value: float) -> float:
    """The decimal that was meant by a float32: 1e-05, not 9.999999747378752e-06."""
    return float(str(np.float32(value)))
