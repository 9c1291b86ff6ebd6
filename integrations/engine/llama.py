"""A Llama-family forward pass in plain torch, with a key-value cache shared by the engine's slots.

The layers are those of Touvron et al., "LLaMA" (2023): RMSNorm before each block, rotary positions,
grouped-query attention, SwiGLU. Weights are read from a folder of safetensors in the layout of
Hugging Face `transformers`.

All shapes are fixed: `decode` always runs all slots against the whole cache length, `prefill` always one
slot and one chunk, both padded. Torch then sums every row in the same order whoever else is there, and a
row's logits do not depend on its neighbours, bit for bit.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True)
class LlamaConfig:
    """The numbers of a Llama-family model, by the names of its `config.json`."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int
    rms_norm_eps: float
    rope_theta: float

    @classmethod
    def read(cls, path: Path) -> LlamaConfig:
        """Read a `config.json`. Raises ValueError for what this forward pass does not do."""
        values: dict[str, Any] = json.loads(path.read_text())
        if values.get("model_type") != "llama":
            raise ValueError(f"{path} describes a model of type {values.get('model_type')!r}, not llama")
        rope = values.get("rope_parameters") or values.get("rope_scaling") or {}
        if rope.get("rope_type", "default") != "default":
            raise ValueError(f"{path}: rotary positions of type {rope['rope_type']!r} are not supported")
        if values.get("attention_bias") or values.get("mlp_bias"):
            raise ValueError(f"{path}: layers with a bias are not supported")
        if values.get("hidden_act", "silu") != "silu":
            raise ValueError(f"{path}: activation {values['hidden_act']!r} is not supported")
        heads = int(values["num_attention_heads"])
        return cls(
            vocab_size=int(values["vocab_size"]),
            hidden_size=int(values["hidden_size"]),
            intermediate_size=int(values["intermediate_size"]),
            num_hidden_layers=int(values["num_hidden_layers"]),
            num_attention_heads=heads,
            num_key_value_heads=int(values.get("num_key_value_heads") or heads),
            head_dim=int(values.get("head_dim") or values["hidden_size"] // heads),
            max_position_embeddings=int(values["max_position_embeddings"]),
            rms_norm_eps=float(values["rms_norm_eps"]),
            rope_theta=float(rope.get("rope_theta") or values.get("rope_theta") or 10_000.0),
        )


@dataclass(frozen=True)
class _Layer:
    attention_norm: Tensor
    query_key_value: Tensor
    attention_output: Tensor
    feed_forward_norm: Tensor
    gate_and_up: Tensor
    down: Tensor


@dataclass(frozen=True)
class LlamaCache:
    """Keys and values of all slots, one tensor a layer: [slots, key-value heads, length, head size]."""

    keys: list[Tensor]
    values: list[Tensor]


class LlamaModel:
    """See `Model`; weights and cache are in `dtype`, norms, softmax and logits in float32."""

    def __init__(
        self, config: LlamaConfig, weights: dict[str, Tensor], *, dtype: torch.dtype, prefill_chunk: int = 64
    ) -> None:
        self.config = config
        self._dtype = dtype
        self._prefill_chunk = prefill_chunk

        def weight(name: str) -> Tensor:
            return weights[name].to(dtype).contiguous()

        self._embedding = weight("model.embed_tokens.weight")
        # Tied embeddings: the table that turns ids into vectors also turns vectors into logits.
        self._output = weight("lm_head.weight") if "lm_head.weight" in weights else self._embedding
        self._norm = weight("model.norm.weight")
        self._layers: list[_Layer] = []
        for index in range(config.num_hidden_layers):
            prefix = f"model.layers.{index}."
            attention = prefix + "self_attn."
            self._layers.append(
                _Layer(
                    attention_norm=weight(prefix + "input_layernorm.weight"),
                    query_key_value=torch.cat([weight(f"{attention}{part}_proj.weight") for part in "qkv"]),
                    attention_output=weight(attention + "o_proj.weight"),
                    feed_forward_norm=weight(prefix + "post_attention_layernorm.weight"),
                    gate_and_up=torch.cat([weight(f"{prefix}mlp.{part}_proj.weight") for part in ("gate", "up")]),
                    down=weight(prefix + "mlp.down_proj.weight"),
                )
            )

    @classmethod
    def load(cls, folder: Path, *, dtype: torch.dtype | None = None, threads: int | None = 1) -> LlamaModel:
        """Read `config.json` and `model.safetensors`.

        `dtype`: bfloat16 where this CPU multiplies it in hardware, else float32, unless given.
        `threads`: torch's thread count for the whole process, None to leave it. On a machine that does
        anything else, one thread is fastest: two wait for each other at every small operation.
        """
        from safetensors.torch import load_file

        if threads is not None:
            torch.set_num_threads(threads)
        config = LlamaConfig.read(folder / "config.json")
        return cls(config, load_file(folder / "model.safetensors"), dtype=dtype or fastest_dtype())

    @property
    def vocabulary_size(self) -> int:
        return self.config.vocab_size

    @property
    def prefill_chunk(self) -> int:
        return self._prefill_chunk

    def open(self, slots: int, max_length: int) -> LlamaCache:
        """A zeroed cache; its length is `max_length` rounded up to whole prefill chunks."""
        config = self.config
        if max_length > config.max_position_embeddings:
            raise ValueError(f"max_length {max_length} is above the model's {config.max_position_embeddings}")
        length = -(-max_length // self._prefill_chunk) * self._prefill_chunk
        shape = (slots, config.num_key_value_heads, length, config.head_dim)
        keys, values = ([torch.zeros(shape, dtype=self._dtype) for _ in self._layers] for _ in range(2))
        return LlamaCache(keys, values)

    @torch.inference_mode()
    def prefill(self, cache: LlamaCache, slot: int, tokens: npt.NDArray[np.int32], start: int) -> None:
        """See `Model.prefill`. What the padding writes behind the tokens is overwritten before it is read."""
        padded = torch.zeros((1, self._prefill_chunk), dtype=torch.int64)
        padded[0, : len(tokens)] = torch.from_numpy(tokens.astype(np.int64))
        positions = torch.arange(start, start + self._prefill_chunk)[None]
        self._forward(cache, slice(slot, slot + 1), padded, positions)

    def decode(
        self, cache: LlamaCache, tokens: npt.NDArray[np.int32], positions: npt.NDArray[np.int32]
    ) -> npt.NDArray[np.float32]:
        """See `Model.decode`."""
        return self._decode(cache, tokens, positions, slice(0, len(tokens)))

    def decode_runs(
        self,
        cache: LlamaCache,
        tokens: npt.NDArray[np.int32],
        positions: npt.NDArray[np.int32],
        slots: npt.NDArray[np.int32],
    ) -> npt.NDArray[np.float32]:
        """See `RunModel.decode_runs`. Costs a copy of the cache's keys and values, layer by layer."""
        return self._decode(cache, tokens, positions, torch.from_numpy(slots.astype(np.int64)))

    @torch.inference_mode()
    def _decode(
        self,
        cache: LlamaCache,
        tokens: npt.NDArray[np.int32],
        positions: npt.NDArray[np.int32],
        slots: slice | Tensor,
    ) -> npt.NDArray[np.float32]:
        columns = (torch.from_numpy(array.astype(np.int64))[:, None] for array in (tokens, positions))
        hidden = self._forward(cache, slots, *columns)
        logits: npt.NDArray[np.float32] = functional.linear(hidden[:, 0], self._output).float().numpy()
        return logits

    def _forward(self, cache: LlamaCache, slots: slice | Tensor, tokens: Tensor, positions: Tensor) -> Tensor:
        """Run `tokens`, int64[rows, run], of the sequences `slots` at `positions`, int64[rows, run].

        Several rows may be of one sequence: all keys and values of a layer are there before any row reads them.

        Returns the last hidden states, [rows, run, hidden size].
        """
        config = self.config
        rows, run = tokens.shape
        heads, shared, size = config.num_attention_heads, config.num_key_value_heads, config.head_dim
        length = cache.keys[0].shape[2]
        row_slots = torch.arange(len(cache.keys[0]))[slots][:, None]
        cosine, sine = self._rotation(positions)
        # Query heads that share a key head are rows of one matrix product, in the order (head, token).
        hidden_keys = torch.arange(length) > positions[:, :, None]
        hidden_keys = hidden_keys[:, None].expand(rows, heads // shared, run, length).reshape(rows, 1, -1, length)

        hidden = functional.embedding(tokens, self._embedding)
        for layer, all_keys, all_values in zip(self._layers, cache.keys, cache.values, strict=True):
            mixed = functional.linear(self._normalise(hidden, layer.attention_norm), layer.query_key_value)
            query, key, value = torch.tensor_split(mixed.view(rows, run, -1, size), (heads, heads + shared), dim=2)
            all_keys[row_slots, :, positions] = _rotate(key, cosine, sine)
            all_values[row_slots, :, positions] = value
            keys, values = all_keys[slots], all_values[slots]

            query = _rotate(query, cosine, sine).transpose(1, 2).reshape(rows, shared, -1, size)
            scores = (query @ keys.transpose(2, 3)).float() / math.sqrt(size)
            weights = scores.masked_fill_(hidden_keys, -math.inf).softmax(dim=-1).to(self._dtype)
            answers = (weights @ values).view(rows, heads, run, size).transpose(1, 2).reshape(rows, run, -1)
            hidden = hidden + functional.linear(answers, layer.attention_output)

            both = functional.linear(self._normalise(hidden, layer.feed_forward_norm), layer.gate_and_up)
            gate, up = both.chunk(2, dim=-1)
            hidden = hidden + functional.linear(functional.silu(gate) * up, layer.down)
        return self._normalise(hidden, self._norm)

    def _normalise(self, hidden: Tensor, weight: Tensor) -> Tensor:
        wide = hidden.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.config.rms_norm_eps)
        return weight * wide.to(self._dtype)

    def _rotation(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosine and sine of the rotary angles, [rows, run, 1, head size]."""
        exponents = torch.arange(0, self.config.head_dim, 2, dtype=torch.float32) / self.config.head_dim
        angles = positions[:, :, None, None].float() * self.config.rope_theta**-exponents
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos().to(self._dtype), angles.sin().to(self._dtype)


def fastest_dtype() -> torch.dtype:
    """bfloat16 where the CPU has instructions for it (AMX, AVX-512), else float32."""
    capabilities = torch.cpu.get_capabilities()
    fast = capabilities.get("amx_bf16") or capabilities.get("avx512_bf16")
    return torch.bfloat16 if fast else torch.float32


def _rotate(vectors: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotary positions (Su et al., "RoFormer", 2021), halves layout; `vectors` [rows, run, heads, size]."""
    first, second = vectors.chunk(2, dim=-1)
    return vectors * cosine + torch.cat((-second, first), dim=-1) * sine
