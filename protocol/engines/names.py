"""What engines and their precisions are called in configurations and on command lines; nothing is loaded for it."""

from __future__ import annotations

from typing import Literal

EngineName = Literal["torch", "vllm"]
Dtype = Literal["float32", "bfloat16"]
