"""A model's folder in Hugging Face format: `config.json` and its weights, read without transformers.

In: a folder (Llama or Qwen2 architecture). Out: a frozen `ModelConfig` and a dict of tensors under
Hugging Face names. `save_checkpoint` writes the same format by temporary folder and rename, so a
reader never sees half of it. The forward pass over these weights is in `protocol/forward.py`.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from protocol.errors import ConfigError, MalformedFile
from protocol.files import sync_folder, write_atomically
from protocol.weights_parts import WEIGHTS_FILE, check_part, parts_of

CONFIG_FILE = "config.json"


class ModelConfig(BaseModel):
    """The part of `config.json` that fixes the computation. Field names are Hugging Face's.

    Example: `ModelConfig.load(folder).head_dim`.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)
    model_type: Literal["llama", "qwen2"]
    vocab_size: int = Field(ge=1)
    hidden_size: int = Field(ge=1)
    intermediate_size: int = Field(ge=1)
    num_hidden_layers: int = Field(ge=1, le=1024)
    num_attention_heads: int = Field(ge=1)
    num_key_value_heads: int = Field(ge=1)
    head_dim: int = Field(ge=2, multiple_of=2)
    max_position_embeddings: int = Field(ge=1)
    rms_norm_eps: float = Field(default=1e-6, gt=0)
    rope_theta: float = Field(default=10_000.0, gt=0)
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    """Llama's flag: biases on all four attention projections. Qwen2 always has them on q, k and v."""
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None
    pad_token_id: int | None = None

    @model_validator(mode="before")
    @classmethod
    def _from_hugging_face(cls, data: Any) -> Any:
        """Fills what Hugging Face leaves implicit and refuses what `CausalLM` doesn't compute."""
        if not isinstance(data, dict):
            return data
        rope = data.get("rope_parameters") or data.get("rope_scaling") or {}
        if not isinstance(rope, dict):
            raise ValueError(f"the rotary embedding's parameters are no table: {rope!r:.100}")
        _refuse(rope.get("rope_type", rope.get("type", "default")) != "default", "scaled RoPE", rope)
        _refuse(data.get("hidden_act", "silu") != "silu", "an activation other than silu", data.get("hidden_act"))
        _refuse(data.get("mlp_bias", False), "biases in the MLP", True)
        _refuse(data.get("use_sliding_window", False), "sliding-window attention", True)
        filled = dict(data)
        filled.setdefault("num_key_value_heads", data.get("num_attention_heads"))
        hidden_size, num_heads = data.get("hidden_size"), data.get("num_attention_heads")
        if filled.get("head_dim") is None and isinstance(hidden_size, int) and isinstance(num_heads, int):
            filled["head_dim"] = hidden_size // max(1, num_heads)
        if "rope_theta" in rope:
            filled["rope_theta"] = rope["rope_theta"]
        return filled

    @model_validator(mode="after")
    def _heads_divide(self) -> ModelConfig:
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError(f"{self.num_attention_heads} heads can't share {self.num_key_value_heads} key-value heads")
        return self

    @classmethod
    def load(cls, folder: Path) -> ModelConfig:
        """Reads `config.json` of a model folder; raises ConfigError where the model isn't supported."""
        path = folder / CONFIG_FILE
        try:
            return cls.model_validate_json(path.read_bytes())
        except (OSError, ValueError) as error:
            detail = "; ".join(e["msg"] for e in error.errors()) if isinstance(error, ValidationError) else str(error)
            raise ConfigError(
                f"can't use the model in {folder}", detail, "give a folder with a Llama or Qwen2 config.json"
            ) from error

    @property
    def qkv_bias(self) -> bool:
        return self.attention_bias or self.model_type == "qwen2"

    def as_hugging_face(self) -> dict[str, Any]:
        """The dict that goes into `config.json`, complete enough for transformers to load it."""
        names = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM"}
        return {"architectures": [names[self.model_type]], "hidden_act": "silu", **self.model_dump(mode="json")}

    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """Every tensor of the model, Hugging Face name to shape."""
        shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (self.vocab_size, self.hidden_size)}
        for layer in range(self.num_hidden_layers):
            shapes |= {f"model.layers.{layer}.{name}": shape for name, shape in self._layer_shapes().items()}
        shapes["model.norm.weight"] = (self.hidden_size,)
        if not self.tie_word_embeddings:
            shapes["lm_head.weight"] = (self.vocab_size, self.hidden_size)
        return shapes

    def _layer_shapes(self) -> dict[str, tuple[int, ...]]:
        hidden, inner = self.hidden_size, self.intermediate_size
        queries, keys = self.num_attention_heads * self.head_dim, self.num_key_value_heads * self.head_dim
        shapes: dict[str, tuple[int, ...]] = {
            "input_layernorm.weight": (hidden,),
            "post_attention_layernorm.weight": (hidden,),
            "mlp.gate_proj.weight": (inner, hidden),
            "mlp.up_proj.weight": (inner, hidden),
            "mlp.down_proj.weight": (hidden, inner),
            "self_attn.o_proj.weight": (hidden, queries),
        }
        for name, rows in (("q", queries), ("k", keys), ("v", keys)):
            shapes[f"self_attn.{name}_proj.weight"] = (rows, hidden)
            if self.qkv_bias:
                shapes[f"self_attn.{name}_proj.bias"] = (rows,)
        if self.attention_bias:
            shapes["self_attn.o_proj.bias"] = (hidden,)
        return shapes


def _refuse(unsupported: object, what: str, value: object) -> None:
    if unsupported:
        raise ValueError(f"the model uses {what} ({value!r}), which isn't supported")


def load_weights(path: Path) -> dict[str, Tensor]:
    """All tensors of a safetensors file (or of a model folder), in the dtype they are stored in.

    Raises MalformedFile where the bytes are no safetensors file, or a folder's files aren't what its index says.
    """
    if not path.is_dir():
        return _load_file(path)
    parts, weights = parts_of(path), dict[str, Tensor]()
    for name in parts:
        tensors = _load_file(path / name)
        check_part(path / name, tensors, parts)
        weights |= tensors
    return weights


def _load_file(file: Path) -> dict[str, Tensor]:
    try:
        tensors: dict[str, Tensor] = load_file(file)
    except (OSError, SafetensorError) as error:
        raise MalformedFile(f"can't read weights from {file}", str(error), "fetch the file again") from error
    return tensors


def check_weights(config: ModelConfig, weights: Mapping[str, Tensor]) -> None:
    """Raises MalformedFile unless `weights` are exactly the floating-point tensors that `config` calls for."""
    wanted = config.weight_shapes()
    names = set(weights) - ({"lm_head.weight"} if config.tie_word_embeddings else set())
    if names != set(wanted):
        difference = sorted(names ^ set(wanted))[:4]
        raise MalformedFile("these weights belong to another model", f"tensors differ: {', '.join(difference)}")
    for name, shape in wanted.items():
        if tuple(weights[name].shape) != shape or not weights[name].is_floating_point():
            found = f"{tuple(weights[name].shape)} {weights[name].dtype}"
            raise MalformedFile("these weights belong to another model", f"{name} is {found}, wanted {shape}")


def save_checkpoint(
    folder: Path, config: ModelConfig, weights: Mapping[str, Tensor], companions: Sequence[Path] = ()
) -> None:
    """Writes a model folder by temporary folder, fsync and rename; `companions` (tokenizer.json) are copied in.

    Raises FileExistsError where `folder` is there already: a checkpoint is never overwritten.
    """
    check_weights(config, weights)
    if folder.exists():
        raise FileExistsError(f"{folder} exists already")
    folder.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        _write_model(staging, config, weights)
        for companion in companions:
            write_atomically(staging / companion.name, companion.read_bytes())
        staging.chmod(0o755)
        staging.rename(folder)
    except BaseException:
        shutil.rmtree(staging)
        raise
    sync_folder(folder.parent)


def write_config(folder: Path, config: ModelConfig, dtype: torch.dtype) -> None:
    """`config.json` of a model whose weights are stored in `dtype`."""
    document = config.as_hugging_face() | {"dtype": str(dtype).removeprefix("torch.")}
    write_atomically(folder / CONFIG_FILE, (json.dumps(document, indent=2, sort_keys=True) + "\n").encode())


def _write_model(folder: Path, config: ModelConfig, weights: Mapping[str, Tensor]) -> None:
    write_config(folder, config, _common_dtype(weights))
    # Sorted names make the file's bytes, and so its hash, a function of the weights alone.
    tensors = {name: weights[name].detach().contiguous() for name in sorted(config.weight_shapes())}
    write_atomically(folder / WEIGHTS_FILE, save(tensors, metadata={"format": "pt"}))


def _common_dtype(weights: Mapping[str, Tensor]) -> torch.dtype:
    dtypes = {tensor.dtype for tensor in weights.values()}
    return dtypes.pop() if len(dtypes) == 1 else torch.float32
