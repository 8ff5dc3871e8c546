"""In which language a kernel's source is written; also its code without comments and strings.

The language of the kernel itself takes precedence over that of its file: a `.py` file with
`@triton.jit` is Triton.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Literal, get_args

SourceLanguage = Literal["pytorch", "triton", "hip", "cuda", "ck", "flydsl", "tilelang", "cute-dsl",
                         "python", "c", "unknown"]
KERNEL_TYPES: dict[str, SourceLanguage] = {
    "pytorch": "pytorch", "torch": "pytorch", "triton": "triton", "hip": "hip", "cuda": "cuda",
    "cuda-cpp": "cuda", "ck": "ck", "ck-tile": "ck", "composable-kernel": "ck", "flydsl": "flydsl",
    "tilelang": "tilelang", "cute-dsl": "cute-dsl", "cutedsl": "cute-dsl", "hipblaslt": "hip",
    "turbo": "hip", "hipkittens": "hip"}
"""What people call the type of a kernel, and the language that they mean."""
KNOWN_TYPES = (*KERNEL_TYPES, "c", "c++", "python", "command")
"""All names that a manifest may use; for those outside of KERNEL_TYPES the source decides."""
_DECORATORS: tuple[tuple[str, SourceLanguage], ...] = (
    (r"(?:triton\.)?(?:jit|autotune|heuristics)", "triton"),
    (r"(?:tilelang|tl)\.(?:jit|autotune)|(?:T|tilelang\.language)\.prim_func", "tilelang"),
    (r"(?:flyc|flydsl\.compiler)\.(?:kernel|jit)", "flydsl"),
    (r"(?:cute|cutlass\.cute)\.(?:kernel|jit)", "cute-dsl"))
"""Decorators of kernels, as they are written."""
_MODULES: dict[str, SourceLanguage] = {"tilelang": "tilelang", "flydsl": "flydsl",
                                       "cutlass": "cute-dsl", "triton": "triton"}
_KERNEL_DECORATORS = ("jit", "autotune", "heuristics", "kernel", "prim_func")
"""The last names of decorators in _MODULES that make a function a kernel."""
_TYPES_OF_C: tuple[tuple[str, SourceLanguage], ...] = (
    (r"#\s*include\s*[<\"](?:ck|ck_tile)/|\bck(?:_tile)?::|\bCK_TILE_\w+"
     r"|\bDevice\w+_Xdl\w*", "ck"),
    (r"#\s*include\s*[<\"]hip/|\bhip[A-Z]\w+|\b__HIP\w+|\b__builtin_amdgcn_\w+", "hip"),
    (r"#\s*include\s*[<\"](?:cuda|cooperative_groups|cub/|cute/|cutlass/)|\bcuda[A-Z]\w+"
     r"|\b__nv_\w+|\bcute::|\bcutlass::|\basm\s*(?:volatile)?\s*\(", "cuda"))
_CK_FOLDER = re.compile(r"ck(?:_\w+)?|composable_kernel")
"""Folders of kernels in Composable Kernel, such as AITER's `ck_gemm_a8w8`."""
_SUFFIXES: dict[str, SourceLanguage] = {".cu": "cuda", ".cuh": "cuda", ".hip": "hip", ".c": "c",
                                        ".py": "python"}
_COMMENT = re.compile(r"\"(?:\\.|[^\"\\\n])*\"|/\*.*?\*/|//[^\n]*", re.DOTALL)
_OPENMP = re.compile(r"^[ \t]*#[ \t]*pragma[ \t]+omp\b", re.MULTILINE)
_GLOBAL = re.compile(r"__global__\s+(?:static\s+|inline\s+)?void\s+(?:__launch_bounds__\s*"
                     r"\([^()]*\)\s*)?(\w+)|__launch_bounds__\s*\([^()]*\)\s*void\s+(\w+)")


def detect(source: str, path: str = "", kernel_type: str = "") -> SourceLanguage:
    """Return the language of a source: that of its kernels, else the declared type of the kernel,
    else the language of the file.
    """
    language, is_sure = _of_python(source) if _is_python(path) else _of_c(
        source, PurePosixPath(path))
    declared = KERNEL_TYPES.get(written(kernel_type))
    return language if is_sure or declared is None else declared


def written(kernel_type: str) -> str:
    """Return the name of a kernel type as the tables write it."""
    return re.sub(r"[ _]", "-", kernel_type.lower())


def _of_c(source: str, path: PurePosixPath) -> tuple[SourceLanguage, bool]:
    """Return a language, and whether the source's own names show it rather than its path."""
    code = without_comments(source)
    types = [name for pattern, name in _TYPES_OF_C if re.search(pattern, code)]
    if "ck" not in types and "cuda" not in types and path.suffix != ".c" \
            and any(map(_CK_FOLDER.fullmatch, path.parent.parts)):
        return "ck", False
    if types and (types[0] == "ck" or len(types) == 1):
        return types[0], True
    if by_suffix := _SUFFIXES.get(path.suffix):
        return by_suffix, False
    return "cuda" if "__global__" in code else "c" if code.strip() else "unknown", False


def _of_python(source: str) -> tuple[SourceLanguage, bool]:
    """Return a language, and whether a kernel in the source shows it rather than its imports."""
    tree = parse_python(source)
    if tree is None:  # a syntax of a newer Python, or not Python at all
        modules = set(re.findall(r"^\s*(?:import|from)\s+(\w+)", source, re.MULTILINE))
        return next((_MODULES[name] for name in _MODULES if name in modules),
                    "pytorch" if "torch" in modules else "python"), False
    modules = set(_imports(tree))
    decorated = [name for _, name in _decorated(tree) if name != "triton" or "triton" in modules]
    if decorated:
        return decorated[0], True
    if device := "\n".join(_device_texts(tree)):
        return _of_c(device, PurePosixPath("device.cu"))[0], True
    others = [name for module, name in _MODULES.items()
              if module in modules and module != "triton"]
    return (others[0] if others else "pytorch" if "torch" in modules else "python"), False


def kernel_names(source: str, path: str = "") -> list[str]:
    """Return the names of the kernels that a source defines, in its order."""
    if not _is_python(path):
        return [match[1] or match[2] for match in _GLOBAL.finditer(without_comments(source))]
    tree = parse_python(source)
    if tree is None:
        return []
    inline = "\n".join(_device_texts(tree))
    return [*(name for name, _ in _decorated(tree)),
            *(match[1] or match[2] for match in _GLOBAL.finditer(inline))]


def code_of(source: str, path: str = "") -> str:
    """Return a source without comments and strings; device code in a Python string is kept.

    Python that cannot be parsed is returned as it is.
    """
    if not _is_python(path):
        return without_comments(source)
    tree = parse_python(source)
    if tree is None:
        return source
    device = "\n".join(map(without_comments, _device_texts(tree)))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node.value = ""
    return f"{ast.unparse(tree)}\n{device}"


def without_comments(source: str) -> str:
    """Return C code without comments and strings; strings with a slash, as in includes, stay."""
    return _COMMENT.sub(lambda match: match[0] if match[0].startswith('"') and "/" in match[0]
                        else " ", source)


def uses_openmp(source: str) -> bool:
    """Return whether a C source has OpenMP pragmas, which are ignored without `-fopenmp`."""
    return bool(_OPENMP.search(without_comments(source)))


def _is_python(path: str) -> bool:
    return PurePosixPath(path).suffix in (".py", "")


def parse_python(source: str) -> ast.Module | None:
    """Return a Python source's tree, None for text that cannot be parsed."""
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def top_level(source: str) -> list[ast.stmt]:
    """Return the statements of a Python source, none for text that cannot be parsed."""
    tree = parse_python(source)
    return [] if tree is None else tree.body


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def _imported_names(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield each name that a source imports, and the package from which it comes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.asname or alias.name.partition(".")[0],
                         alias.name.partition(".")[0]) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((alias.asname or alias.name, node.module.partition(".")[0])
                        for alias in node.names)


def _decorated(tree: ast.Module) -> Iterator[tuple[str, SourceLanguage]]:
    """Yield each function that is a kernel by its decorator: its name and its language.

    Imports are followed: `flyc.kernel` after `import flydsl.compiler as flyc`.
    """
    imported = dict(_imported_names(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            texts = [ast.unparse(each.func if isinstance(each, ast.Call) else each)
                     for each in node.decorator_list]
            languages = [_MODULES[module] for text in texts
                         for module in [imported.get(text.partition(".")[0], "")]
                         if module in _MODULES and text.rpartition(".")[2] in _KERNEL_DECORATORS] \
                or [name for text in texts for pattern, name in _DECORATORS
                    if re.fullmatch(pattern, text)]
            if languages:
                yield node.name, languages[0]


def _device_texts(tree: ast.Module) -> Iterator[str]:
    """Yield the strings in a Python source that contain CUDA C++ or HIP."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) \
                and re.search(r"__global__\s", node.value):
            yield node.value


assert set(KERNEL_TYPES.values()) <= set(get_args(SourceLanguage))
