"""By-products that a worker leaves next to its change never reach a verdict."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from engine.repository.campaign_repo import CampaignRepo
from engine.repository.clone import Change
from engine.repository.patches import hygiene
from engine.repository.patches.hygiene import by_product_kind, clean, refuse_conflicts
from engine.repository.patches.patch import Dropped, parse
from harness.errors import InputError
from tests.support import repos

CHANGE = """\
diff --git a/kernel.c b/kernel.c
index 257cc56..5716ca5 100644
--- a/kernel.c
+++ b/kernel.c
@@ -1 +1 @@
-foo
+bar
"""


def new(path: str, text: str = "bar") -> str:
    lines = text.split("\n")
    body = "".join(f"+{line}\n" for line in lines)
    return (f"diff --git a/{path} b/{path}\nnew file mode 100644\nindex 0000000..5716ca5\n"
            f"--- /dev/null\n+++ b/{path}\n@@ -0,0 +1,{len(lines)} @@\n{body}")


# a section is binary by either of two markers, and only in its head

LITERAL = "GIT binary patch\nliteral 2\nJcmZQzWMT#Y01f~L\n\nliteral 0\nHcmV?d00001\n\n"
DIFFER = "Binary files {} and {} differ\n"


@pytest.mark.parametrize(("section", "binary"), [
    (f"diff --git a/x.npy b/x.npy\nnew file mode 100644\nindex 0..c227083\n{LITERAL}", True),
    (f"diff --git a/x.npy b/x.npy\nindex 1..c227083 100644\n{LITERAL}", True),
    (f"diff --git a/x.npy b/x.npy\ndeleted file mode 100644\nindex 1..0\n{LITERAL}", True),
    ("diff --git a/x b/x\nnew file mode 100644\nindex 0..1\n" + DIFFER.format("/dev/null", "b/x"),
     True),
    ("diff --git a/x b/x\nindex 2..1 100644\n" + DIFFER.format("a/x", "b/x"), True),
    ("diff --git a/x b/y\nsimilarity index 90%\nrename from x\nrename to y\nindex 2..1 100644\n"
     + DIFFER.format("a/x", "b/y"), True),
    (new("notes.c", "GIT binary patch\nBinary files a/x and b/x differ"), False),
    (CHANGE.replace("+bar", "+GIT binary patch"), False),
    (CHANGE.replace("-foo", "-Binary files a and b differ"), False),
])
def test_binary_sections_are_recognised_by_either_marker(section: str, binary: bool) -> None:
    cleaned = clean(parse(CHANGE + section))
    assert len(cleaned.files) == (1 if binary else 2)
    assert [left.reason for left in cleaned.dropped] == (["binary"] if binary else [])


def test_diff_remarks_between_sections_are_ignored() -> None:
    text = (DIFFER.format("old/x.so", "new/x.so") + "Only in new: y.so\n" + CHANGE
            + DIFFER.format("old/z.so", "new/z.so"))
    assert [file.path for file in clean(parse(text)).files] == ["kernel.c"]


# A file's folders tell builds and caches, never its own name; `build` and `dist` only at the top

@pytest.mark.parametrize(("path", "kind"), [
    ("build/kernel.c", "build folder"), ("build_harness/run.c", "build folder"),
    ("_geak_build/k.cpp", "build folder"), ("_kopt_build/k.cpp", "build folder"),
    ("_eval_worktree/kernel.c", "build folder"), (".aiter_jit/module.cpp", "cache folder"),
    ("dist/x.txt", "build folder"), ("a/CMakeFiles/3.2/x.c", "build folder"),
    ("kopt.egg-info/SOURCES.txt", "build folder"),
    ("aiter/jit/build/module_x/module.cpp", "build folder"),
    ("jit/build/ninja.txt", "build folder"), ("jit/__pycache__/x.py", "cache folder"),
    ("jit/core.py", ""), ("jit/utils/build/x.py", ""), ("build/jit/x.py", "build folder"),
    ("src/build/kernel.c", ""), ("docs/dist/x.md", ""), ("builder/kernel.c", ""),
    (".triton/dump/x.txt", "cache folder"), (".triton_dump/x", "cache folder"),
    ("x/.aiter/y", "cache folder"), ("torch_compile_debug/run/x.py", "cache folder"),
    ("torchinductor_root/ab/c.py", "cache folder"), ("flydsl_cache/x.mlir", "cache folder"),
    ("src/Cache/x.c", "cache folder"), ("my_caches/x.c", "cache folder"),
    (".pytest_cache/v/x", "cache folder"), (".mypy_cache/x.json", "cache folder"),
    ("cache_utils.py", ""), ("src/kv_cache.cu", ""), ("torch_compile.py", ""),
    ("src/.triton", ""), ("src/aiter.py", ""), ("torchinductor.py", ""),
])
def test_build_and_cache_folders_are_recognised(path: str, kind: str) -> None:
    assert by_product_kind(path) == kind


@pytest.mark.parametrize(("path", "kind"), [
    ("kv_cache/fast.py", ""), ("kv_cache/deep/fast.py", ""), ("kv_cache/.triton/x", "cache folder"),
    ("kv_cache/__pycache__/x.py", "cache folder"), ("kv_cache/k.so", "compiled file"),
    ("my_cache/fast.py", "cache folder"), ("x/kv_cache/fast.py", "cache folder"),
    ("build/gen.py", ""), ("jit/build/x.py", ""), ("__pycache__/y.py", "cache folder"),
])
def test_tracked_folder_is_source(path: str, kind: str) -> None:
    tracked = {"kv_cache", "kv_cache/deep", "build", "jit", "jit/build", "__pycache__"}
    assert by_product_kind(path, tracked=tracked) == kind
    assert bool(clean(parse(CHANGE + new(path)), ("**",), tracked).dropped) is bool(kind)


def test_new_file_in_tracked_folder_is_kept(tmp_path: Path) -> None:
    """From a worktree and from the inbox; without the file the kernel could not be imported."""
    repos.project(tmp_path / "user", {"kv_cache/old.py": "x = 1\n", "kernel.py": "y = 1\n"})
    repo = CampaignRepo.create(tmp_path / "campaign", "rms", tmp_path / "user")
    tree = repo.worktree("fixed-1", repo.best)
    for name in ("kv_cache/fast.py", "my_cache/junk.py"):
        (tree / name).parent.mkdir(exist_ok=True)
        (tree / name).write_text("z = 1\n")
    (tree / "kernel.py").write_text("import kv_cache.fast\n")
    patch = repo.capture(tree, repo.best, ("**/*.py",)).patch
    assert [file.path for file in patch.files] == ["kernel.py", "kv_cache/fast.py"]
    assert [dropped_file.path for dropped_file in patch.dropped] == ["my_cache/junk.py"]
    handed_in = repo.take(repo.best, patch.data, ("**/*.py",))
    assert [file.path for file in handed_in.patch.files] == ["kernel.py", "kv_cache/fast.py"]


@pytest.mark.parametrize("suffix", [
    "hsaco", "amdgcn", "llir", "ttir", "ttgir", "cubin", "ptx", "spv", "o", "so", "so.1",
    "so.1.2.3", "a", "pyc", "pyd", "obj", "fatbin", "sass", "gcda",
])
def test_compiled_files_are_recognised_by_suffix(suffix: str) -> None:
    assert by_product_kind(f"src/kernel.{suffix}") == "compiled file"
    assert by_product_kind(f"src/kernel_{suffix.replace('.', '_')}.py") == ""
    text = new(f"src/kernel.{suffix}")
    assert not clean(parse(text), ("src/**",)).files
    assert clean(parse(text), (f"src/kernel.{suffix}",)).files, "the manifest spells it out"


@pytest.mark.parametrize("name", [
    "run.sh", "run_harness.sh", "test_harness.py", "test_rms_harness.py", "CMakeCache.txt",
    "Makefile", "baseline_metrics.json", "profile.json", "kernel_standalone",
    "kernel_standalone.cpp", "kernel.c.bak", "kernel.c.orig", "kernel.c.rej", ".kernel.c.swp",
    "kernel.c~", "nohup.out", "core.1234", ".ninja_log", "build.ninja", "compile_commands.json",
])
def test_worker_helper_files_are_dropped(name: str) -> None:
    assert by_product_kind(name) == "helper file"
    cleaned = clean(parse(CHANGE + new(name)), ("**",))
    assert [file.path for file in cleaned.files] == ["kernel.c"]
    assert [(left.path, left.reason) for left in cleaned.dropped] == [(name, "helper file")]


def test_projects_own_makefile_is_named_as_what_edit_does_not_include() -> None:
    """A person who changes the project's flags read that the Makefile is a helper file."""
    text = CHANGE + CHANGE.replace("kernel.c", "Makefile")
    [left] = clean(parse(text), ("kernel.c",)).dropped
    assert (left.path, left.reason) == (
        "Makefile", "the project's own file, which `edit` does not include")


@pytest.mark.parametrize("name", ["Makefile", "run.sh", "profile.json"])
def test_existing_helper_file_may_be_edited(name: str) -> None:
    text = CHANGE.replace("kernel.c", name)
    assert clean(parse(text), ("**",)).files and clean(parse(text)).files
    assert not clean(parse(text), ("kernel.c",)).files


# what a failed merge leaves

MARKED = "before\n<<<<<<< HEAD\nint a;\n=======\nint b;\n>>>>>>> theirs\nafter"


@pytest.mark.parametrize(("text", "name"), [
    (new("kernel.c", MARKED), "kernel.c"),
    (new("kernel.c", MARKED.replace(" HEAD", "").replace(" theirs", "")), "kernel.c"),
    (new("kernel.c", MARKED.replace("=======", "||||||| base\nint c;\n=======")), "kernel.c"),
    (CHANGE + new("src/other.h", MARKED), "src/other.h"),
    (new("kernel.c", MARKED.replace("\n", "\r\n")), "kernel.c"),
    (new("doc.rst", "Title\n=======\ntext"), ""),
    (new("kernel.c", "// <<<<<<< HEAD\n// =======\n// >>>>>>> x"), ""),
    (new("kernel.c", ">>>>>>> x\n=======\n<<<<<<< y"), ""),
    (new("kernel.c", "<<<<<<<<\n========\n>>>>>>>>"), ""),
    (CHANGE.replace("-foo\n+bar", " <<<<<<< a\n-foo\n+=======").replace("-1 +1", "-1,2 +1,2"), ""),
])
def test_conflict_markers_are_refused(text: str, name: str) -> None:
    if not name:
        refuse_conflicts(parse(text))
        return
    with pytest.raises(InputError, match=f"conflict markers in '{re.escape(name)}'"):
        refuse_conflicts(parse(text))


@pytest.fixture(scope="module")
def repo(tmp_path_factory: pytest.TempPathFactory) -> CampaignRepo:
    root = tmp_path_factory.mktemp("hygiene")
    return CampaignRepo.create(root / "campaign", "rms", repos.project(root / "user"))


def edited(repo: CampaignRepo, line: int, text: str) -> Change:
    tree = repo.worktree("s", repo.base)
    (tree / "kernel.c").write_text(repos.edited(repos.KERNEL, line, text))
    return repo.capture(tree, repo.base)


def test_captured_conflict_is_refused(repo: CampaignRepo) -> None:
    with pytest.raises(InputError, match=r"conflict markers in 'kernel\.c'"):
        edited(repo, 3, MARKED)


def test_new_file_that_already_exists_is_dropped_and_the_rest_applied(repo: CampaignRepo) -> None:
    """`git apply` rejects a whole patch because of one such section."""
    good = edited(repo, 5, "faster();").patch
    for clash in ("task.yaml", "src/deep/helper.h", "reference.py"):
        for text in (good.text + new(clash), new(clash) + good.text):
            applied = repo.apply(repo.base, parse(text))
            assert applied.patch.text == good.text
            assert [(d.path, d.reason) for d in applied.patch.dropped] == [
                (clash, "new file that exists")]
    alone = repo.apply(repo.base, parse(new("task.yaml")))
    assert not alone.patch and alone.tree == repo.tree_of(repo.base)


def test_merge_reads_missing_blobs_from_project(tmp_path: Path) -> None:
    """The patch is against a later commit of the project, which the clone lacks."""
    user = repos.project(tmp_path / "user")
    repo = CampaignRepo.create(tmp_path / "campaign", "rms", user)
    later = repos.edited(repos.KERNEL, 7, "float renamed_7(float x) { return x; }")
    repos.commit(user, {"kernel.c": later}, "goes on")
    (user / "kernel.c").write_text(repos.edited(later, 9, "faster();"))
    text = repos.git(user, "diff", "--full-index") + "\n"
    applied = repo.apply(repo.base, parse(text))
    assert repo.read(applied.tree, "kernel.c").decode() == repos.edited(
        repos.KERNEL, 9, "faster();")
    user.rename(tmp_path / "gone")
    assert repo.apply(repo.base, parse(text)).tree == applied.tree, "the clone is whole"
    fresh = CampaignRepo.create(tmp_path / "other", "rms", repos.project(tmp_path / "stranger"))
    with pytest.raises(InputError, match="does not apply"):
        fresh.apply(fresh.base, parse(text))


# messages about dropped files

@pytest.mark.parametrize(("dropped", "message"), [
    ((), ""), ((Dropped("k.so", "compiled file"),), ""),
    ((Dropped("a/__pycache__/k.pyc", "cache folder"),), ""),
    ((Dropped("my_cache/fast.py", "cache folder"),), "my_cache/fast.py (cache folder)"),
    ((Dropped("notes.md", "new file that `edit` does not include"), Dropped("w.npy", "binary"),
      Dropped("my_cache/\x1b[1mx", "cache folder")),
     "my_cache/x (cache folder), w.npy (binary), notes.md (new file that `edit` does not include)"),
    (tuple(Dropped(f"n{n}.md", "helper file") for n in range(9)),
     "n0.md (helper file), n1.md (helper file), n2.md (helper file), n3.md (helper file), "
     "n4.md (helper file) and 4 more"),
])
def test_dropped_files_are_described(dropped: tuple[Dropped, ...], message: str) -> None:
    assert hygiene.describe_dropped(dropped) == message


def test_notes_name_dropped_files_and_what_to_add_for_new_ones() -> None:
    dropped = (Dropped("k.so", "compiled file"), Dropped("w.npy", "binary"),
               Dropped("tile.h", hygiene.NOT_IN_EDIT))
    binary, new = hygiene.notes_on_dropped(dropped)
    assert binary == "left out w.npy (binary)"
    assert "(edit: [..., tile.h])" in new
    assert hygiene.notes_on_dropped(dropped[:1]) == []


@pytest.mark.parametrize(("dropped", "reason"), [
    ((), ""),
    ((Dropped("w.npy", "binary"),), "every file of it was left out: w.npy (binary)"),
    ((Dropped("k.so", "compiled file"),),
     "every file of it was left out: compiled and cached files")])
def test_empty_change_names_what_was_dropped(dropped: tuple[Dropped, ...], reason: str) -> None:
    assert hygiene.why_empty(dropped) == reason
