"""`import stepmask` stays light, and packages import only what lies below them."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import stepmask

ROOT = Path(__file__).resolve().parent.parent
HEAVY = ("numba", "torch", "transformers", "triton", "llvmlite")
#: Of a package: prefixes of what its modules must not import, anywhere in them.
FORBIDDEN = {
    "grammar": ("stepmask.masks", "stepmask.integrations", "stepmask.cli", "torch", "transformers", "triton"),
    "masks": ("stepmask.integrations", "stepmask.cli", "transformers", "vllm", "sglang", "llama_cpp"),
}


def in_a_new_process(code: str) -> object:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_import_loads_nothing_heavy() -> None:
    loaded = in_a_new_process(
        f"import sys, json, stepmask; stepmask.__version__; print(json.dumps([m for m in {HEAVY} if m in sys.modules]))"
    )
    assert loaded == []


def test_importing_every_module_of_grammar_and_masks_compiles_nothing() -> None:
    """Signatures are declared at import and compiled by `warm_up`, not before."""
    compiled = in_a_new_process(
        "import json, stepmask\n"
        "from stepmask.masks.warm_up import KERNEL_MODULES\n"
        "import importlib\n"
        "for name in KERNEL_MODULES: importlib.import_module(name, 'stepmask')\n"
        "import stepmask.masks.batch, stepmask.masks.matcher\n"
        "from stepmask._numba import REGISTRY\n"
        "assert REGISTRY\n"
        "print(json.dumps([d.__name__ for d, _ in REGISTRY if d.signatures]))"
    )
    assert compiled == []


def test_every_public_name_is_there_and_listed() -> None:
    for name in stepmask.__all__:
        assert getattr(stepmask, name) is not None
    assert set(stepmask.__all__) <= set(dir(stepmask))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        stepmask.nonsense  # noqa: B018


def imports(path: Path) -> set[str]:
    """Absolute names of all modules that a file of the package imports, at any depth."""
    package = ("stepmask", *path.relative_to(ROOT).parent.parts)
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join([*above, *([node.module] if node.module else [])])
            found.update(f"{base}.{alias.name}" for alias in node.names)
    return found


@pytest.mark.parametrize("package", FORBIDDEN)
def test_packages_import_only_what_lies_below(package: str) -> None:
    for path in sorted((ROOT / package).rglob("*.py")):
        wrong = {
            name for name in imports(path) if any(name == f or name.startswith(f + ".") for f in FORBIDDEN[package])
        }
        assert not wrong, f"{path.relative_to(ROOT)} imports {sorted(wrong)}"


def test_wheel_lists_every_package() -> None:
    """Each folder of the package with an `__init__.py` is in pyproject.toml, or it would be missing from a wheel."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for init in sorted(ROOT.glob("*/**/__init__.py")):
        folder = init.parent.relative_to(ROOT)
        if folder.parts[0] in ("grammar", "masks", "integrations"):
            assert f'"stepmask.{".".join(folder.parts)}"' in text
