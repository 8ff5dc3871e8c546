"""Patches are parsed without loss, cleaned, checked for violations and applied by the ladder."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.globs import matches
from engine.repository.patches import patch
from engine.repository.patches.hygiene import by_product_kind, clean, violations
from engine.repository.patches.patch import Patch, candidate_id, parse
from harness.errors import InputError
from tests.support.patch_case import BINARY, MAIL, NEW, SIMPLE, changed


def shown(patch: Patch) -> list[tuple[str, str, int, int]]:
    return [(f.old_path, f.new_path, f.added, f.removed) for f in patch.files]


@pytest.mark.parametrize(("text", "files"), [
    ("", []),
    ("no diff here\n", []),
    (SIMPLE, [("kernel.c", "kernel.c", 1, 1)]),
    (SIMPLE.rstrip("\n"), [("kernel.c", "kernel.c", 1, 1)]),
    (SIMPLE + NEW.format("new.h"), [("kernel.c", "kernel.c", 1, 1), ("", "new.h", 1, 0)]),
    (MAIL, [("kernel.c", "kernel.c", 1, 1)]),
    (BINARY + SIMPLE, [("", "x.bin", 0, 0), ("kernel.c", "kernel.c", 1, 1)]),
    ("diff --git a/a b.c b/a b.c\nold mode 100644\nnew mode 100755\n", [("a b.c", "a b.c", 0, 0)]),
    ("diff --git a/k.c b/k.c\ndeleted file mode 100644\nindex 1..0\n--- a/k.c\n+++ /dev/null\n"
     "@@ -1,2 +0,0 @@\n-one\n--- two\n", [("k.c", "", 0, 2)]),
    ("diff --git a/old.c b/new.c\nsimilarity index 90%\nrename from old.c\nrename to new.c\n",
     [("old.c", "new.c", 0, 0)]),
    ("diff --git a/a/x.c b/b/x.c\nsimilarity index 90%\nrename from a/x.c\nrename to b/x.c\n"
     "--- a/a/x.c\n+++ b/b/x.c\n@@ -1 +1 @@\n-1\n+2\n", [("a/x.c", "b/x.c", 1, 1)]),
    ('diff --git "a/caf\\303\\251 \\"x\\".c" "b/caf\\303\\251 \\"x\\".c"\n'
     '--- "a/caf\\303\\251 \\"x\\".c"\n+++ "b/caf\\303\\251 \\"x\\".c"\n@@ -1 +1 @@\n-1\n+2\n',
     [('café "x".c', 'café "x".c', 1, 1)]),
    ("--- k.c.orig\t2026-01-01 10:00:00\n+++ k.c\t2026-01-01 10:00:01\n@@ -1 +1 @@\n-1\n+2\n",
     [("k.c.orig", "k.c", 1, 1)]),
    ("--- a/k.c\n+++ b/k.c\n@@ -1,3 +1,3 @@ int f(void)\n a\n---- b\n++++ b\n c\n"
     "--- a/l.c\n+++ b/l.c\n@@ -1 +1 @@\n-1\n+2\n",
     [("k.c", "k.c", 1, 1), ("l.c", "l.c", 1, 1)]),
    ("diff --git a/k.c b/k.c\n--- a/k.c\n+++ b/k.c\n@@ -1 +1 @@\n-a\n"
     "\\ No newline at end of file\n+b\n\\ No newline at end of file\n", [("k.c", "k.c", 1, 1)]),
    ("diff --git a/k.c b/k.c\r\n--- a/k.c\r\n+++ b/k.c\r\n@@ -1,2 +1,2 @@\r\n-a\r\n+b\r\n \r\n",
     [("k.c", "k.c", 1, 1)]),
    ("diff --git a/k.c b/k.c\n--- a/k.c\n+++ b/k.c\n@@ -1,3 +1,3 @@\n a\n\n-b\n+c\n",
     [("k.c", "k.c", 1, 1)]),
])
def test_patch_is_parsed_and_rendered(
    text: str, files: list[tuple[str, str, int, int]]
) -> None:
    patch = parse(text)
    assert shown(patch) == files
    assert patch.text == text
    assert patch.data == text.encode()
    assert bool(patch) == bool(files)


@pytest.mark.parametrize(("text", "message"), [
    ("diff --git a/k b/k\n--- a/k\n+++ b/k\n@@ -1,4 +1,4 @@\n-a\n+b\n", "patch:7: the hunk of l"),
    ("--- a/k\n+++ b/k\n@@ -1 +1 @@\n*a\n", "patch:4: the hunk of line 3 ends early"),
    ("--- a/k\n+++ b/k\n@@ -1,2 +1,1 @@\n a\n b\n c\n", "longer than its header says"),
    ("diff --cc k.c\nindex 1,2..3\n", "patch:1: a merge's"),
    (SIMPLE.replace("bar", "\ud800"), "not valid text"),
])
def test_torn_patch_is_reported_with_line(text: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        parse(text)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_file_modes_are_parsed() -> None:
    def modes(text: str) -> tuple[str, str]:
        return (parse(text).files[0].old_mode, parse(text).files[0].new_mode)

    assert modes(SIMPLE) == ("100644", "100644")
    assert modes(NEW.format("k")) == ("", "100644")
    assert modes("diff --git a/k b/k\nold mode 100644\nnew mode 120000\n") == ("100644", "120000")


names = st.text(st.characters(codec="utf-8", exclude_characters="\0\n\r\t/"), min_size=1,
                max_size=12).filter(lambda name: name.strip() == name and name not in (".", ".."))


paths = st.lists(names, min_size=1, max_size=3).map("/".join)


lines = st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=20)


@st.composite
def sections(draw: st.DrawFn) -> str:
    """Draw a well-formed section with names and lines that confuse parsers."""
    path = draw(paths)
    old, new = patch.quote(f"a/{path}"), patch.quote(f"b/{path}")
    tab = "\t" if " " in path and not old.startswith('"') else ""
    text = f"diff --git {old} {new}\nindex 1234567..89abcde 100644\n"
    text += f"--- {old}{tab}\n+++ {new}{tab}\n"
    for _ in range(draw(st.integers(1, 3))):
        body = draw(st.lists(st.tuples(st.sampled_from(" +-"), lines), min_size=1, max_size=6))
        before = sum(sign != "+" for sign, _ in body)
        after = sum(sign != "-" for sign, _ in body)
        text += f"@@ -1,{before} +1,{after} @@ {draw(lines)}\n"
        text += "".join(f"{sign}{line}\n" for sign, line in body)
    return text


@given(st.lists(sections(), max_size=4))
@settings(max_examples=150, deadline=None)
def test_well_formed_patch_keeps_sections(texts: list[str]) -> None:
    patch = parse("".join(texts))
    assert [file.text for file in patch.files] == texts
    assert patch.text == "".join(texts)


@given(st.lists(st.sampled_from([
    "diff --git a/k b/k", "--- a/k", "+++ b/k", "@@ -1 +1 @@", "@@ -1,2 +0,0 @@", "-a", "+b", " c",
    "", "\\ No newline at end of file", "GIT binary patch", "new file mode 100644", "rename to x",
    "diff --git", "--- ", "+++ ", "@@ ", "diff --git \"a/x", "Binary files a/x and b/x differ",
]), max_size=14), st.booleans())
@settings(max_examples=300, deadline=None)
def test_any_text_is_parsed_without_loss_or_refused(parts: list[str], ended: bool) -> None:
    text = "\n".join(parts) + ("\n" if ended and parts else "")
    try:
        patch = parse(text)
    except InputError:
        return
    assert patch.text == text


@given(st.binary(max_size=200))
def test_any_bytes_round_trip(data: bytes) -> None:
    try:
        assert parse(data).data == data
    except InputError:
        return


@given(paths)
def test_quoting_round_trips(path: str) -> None:
    assert patch.unquote(patch.quote(path)) == path
    for line, prefix in ((f"--- {patch.quote('a/' + path)}", "a/"),):
        assert patch.header_name(line) == prefix + path


@pytest.mark.parametrize(("path", "kind"), [
    ("build/x.c", "build"), ("build_harness/k.py", "build"), ("src/build/k.c", ""),
    (".triton/x/k.json", "cache"), (".triton_jit/k", "cache"), ("torchinductor_root/k.py", "cache"),
    ("a/flydsl_cache_1/k.py", "cache"), ("__pycache__/k.py", "cache"), ("my_Cache/k.py", "cache"),
    ("cache_utils.py", ""), ("src/cache_kernels.cu", ""), ("kernel.c", ""), ("src/k.cu", ""),
    ("k.hsaco", "compiled"), ("k.ptx", "compiled"), ("k.ttgir", "compiled"), ("k.o", "compiled"),
    ("k.so", "compiled"), ("solver.sol", ""), ("k.cubin", "compiled"),
    ("run.sh", "helper"), ("test_my_harness.py", "helper"), ("k.c.bak", "helper"),
    ("k_standalone", "helper"), ("Makefile", "helper"), ("out.log", "helper"), ("k.c~", "helper"),
    ("core", "helper"), ("core.c", ""), ("logger.c", ""),
])
def test_by_products_are_recognised_by_folder_suffix_and_name(path: str, kind: str) -> None:
    assert kind in by_product_kind(path)
    assert bool(by_product_kind(path)) == bool(kind)


@pytest.mark.parametrize(("edit", "text", "kept"), [
    (("kernel.c",), NEW.format("notes.md") + SIMPLE, ["kernel.c"]),
    ((), NEW.format("notes.md") + SIMPLE, ["notes.md", "kernel.c"]),
    (("**",), NEW.format("build/x.c") + SIMPLE, ["kernel.c"]),
    (("build/x.c",), NEW.format("build/x.c"), ["build/x.c"]),
    (("kv_cache/**",), NEW.format("kv_cache/k.cuh"), ["kv_cache/k.cuh"]),
    (("kv_cache/**",), NEW.format("kv_cache/.triton/k.cuh"), []),
    (("kv_cache",), changed("kv_cache/k.cuh"), ["kv_cache/k.cuh"]),
    ((), changed("kv_cache/k.cuh"), ["kv_cache/k.cuh"]),
    (("kernel.c",), changed("kv_cache/k.cuh"), []),
    (("kernel.c",), changed("other.c"), ["other.c"]),
    (("*.bin", "x.bin"), BINARY, []),
])
def test_by_products_are_dropped(edit: tuple[str, ...], text: str, kept: list[str]) -> None:
    patch = parse(text)
    cleaned = clean(patch, edit)
    assert [f.path for f in cleaned.files] == kept
    assert {d.path for d in cleaned.dropped} == {f.path for f in patch.files} - set(kept)
    assert all(d.reason for d in cleaned.dropped)
    assert clean(cleaned, edit) == cleaned


def mode(path: str, old: str, new: str) -> str:
    return f"diff --git a/{path} b/{path}\nold mode {old}\nnew mode {new}\n"


@pytest.mark.parametrize(("text", "kinds"), [
    (SIMPLE, []),
    (changed("reference.py"), ["frozen"]),
    (changed("src/other.c"), ["outside"]),
    (changed("requirements.txt"), ["dependency"]),
    (NEW.format("sub/requirements-dev.txt"), ["dependency"]),
    (changed("pyproject.toml"), ["dependency"]), (changed("setup.py"), ["dependency"]),
    (changed("environment.yml"), ["dependency"]), (changed("uv.lock"), ["dependency"]),
    (NEW.format("sitecustomize.py"), ["start-up"]), (NEW.format("a/evil.pth"), ["start-up"]),
    (changed("../kernel.c"), ["path", "outside"]), (changed("a/../kernel.c"), ["path", "outside"]),
    (changed("/etc/passwd"), ["path", "outside"]), (changed("x/.git/config"), ["path", "outside"]),
    (changed(".GIT/hooks/x"), ["path", "outside"]), (changed("a//b"), ["path", "outside"]),
    (changed(f"{'n' * 256}.c"), ["path", "outside"]),
    (changed(f"{'d/' * 70}x.c"), ["path", "outside"]),
    (changed(f"{f'{200 * chr(110)}/' * 6}x.c"), ["path", "outside"]),
    (NEW.format("kernel.c").replace("100644", "120000"), ["symlink"]),
    (mode("kernel.c", "100644", "120000"), ["symlink"]),
    (mode("kernel.c", "120000", "100644"), ["symlink"]),
    (NEW.format("kernel.c").replace("100644", "160000"), ["submodule"]),
    (NEW.format("kernel.c").replace("100644", "100755"), ["executable"]),
    (mode("kernel.c", "100644", "100755"), ["executable"]),
    (mode("kernel.c", "100755", "100644"), []),
    (mode("kernel.c", "100644", "104755"), ["mode"]),
    ("diff --git a/reference.py b/kernel.c\nsimilarity index 90%\nrename from reference.py\n"
     "rename to kernel.c\n", ["frozen"]),
    ("diff --git a/reference.py b/reference.py\ndeleted file mode 100644\n", ["frozen"]),
])
def test_violations_are_listed(text: str, kinds: list[str]) -> None:
    found = violations(parse(text), ("kernel.c",), ("reference.py", "task.yaml"))
    assert [v.kind for v in found] == kinds
    assert all(v.path and v.detail for v in found)


@pytest.mark.parametrize(("glob", "yes", "no"), [
    ("kernel.c", ["kernel.c"], ["a/kernel.c", "kernel.cu", "kernelxc"]),
    ("*.c", ["a.c", ".c"], ["a/b.c", "a.cc"]),
    ("**/*.c", ["a.c", "x/y/a.c"], ["a.h"]),
    ("src/**", ["src/a", "src/x/y"], ["src2/a", "a/src/b"]),
    ("src/", ["src/a", "src/x/y"], ["src2"]),
    ("src/*.cu", ["src/a.cu"], ["src/x/a.cu"]),
    ("a/**/z.c", ["a/z.c", "a/b/c/z.c"], ["az.c", "b/a/z.c"]),
    ("k[0-9].c", ["k1.c"], ["ka.c", "k12.c"]),
    ("k[!0-9].c", ["ka.c"], ["k1.c"]),
    ("k?.c", ["k1.c"], ["k.c", "k/.c"]),
    ("./kernel.c", ["kernel.c"], []),
    ("**", ["a", "a/b"], []),
    ("a+(b).c", ["a+(b).c"], ["aab.c"]),
    ("odd[.c", ["odd[.c"], []),
])
def test_globs_match_whole_paths(glob: str, yes: list[str], no: list[str]) -> None:
    assert [path for path in yes if not matches(path, (glob,))] == []
    assert [path for path in no if matches(path, (glob,))] == []


def test_candidate_id_depends_on_base_and_patch() -> None:
    patch = parse(SIMPLE)
    assert candidate_id("t0", patch) == candidate_id("t0", parse(SIMPLE.encode()))
    assert len({candidate_id("t0", patch), candidate_id("t1", patch),
                candidate_id("t0", parse(SIMPLE + "\n"))}) == 3
    assert len(candidate_id("t0", patch)) == 12
