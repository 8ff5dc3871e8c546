"""C transformations keep a kernel's result, alone and combined, or state why they do not apply."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.transformations import transformation_registry
from engine.transformations.transformation import DoesNotApply, Transformation
from harness.search.space import knob_proposals, knobs
from tests.support.kernels.c_functions import (
    FUNCTIONS,
    MATMUL,
    SOFTMAX,
    CFunction,
    compiled,
    is_close,
)
from tests.support.paths import EXAMPLES

WANTED = {
    "softmax": {"c-accumulators", "c-vector-math", "c-relaxed-math", "c-unroll-and-jam",
                "c-reciprocal"},
    "matmul": {"c-accumulators", "c-unroll-and-jam", "c-restrict"},
    "row means": {"c-accumulators", "c-reciprocal"},
    "column sums": {"c-loop-order"},
    "parallel stencil": {"c-loop-order", "c-hoist"},
    "transpose": {"c-blocking"},
    "product of arrays": {"c-unroll-and-jam"},
    "column sums of an array": {"c-loop-order", "c-unroll-and-jam"},
    "range": {"c-accumulators", "c-reciprocal", "c-hoist"},
    "rmsnorm example": {"c-reciprocal", "c-hoist", "c-unroll-and-jam"},
    "matmul example": {"c-unroll-and-jam", "c-relaxed-math"},
    "layernorm example, forward": {"c-accumulators", "c-reciprocal", "c-hoist"},
    "layernorm example, backward": {"c-accumulators"},
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_expected_transformations_apply_and_keep_the_result(name: str, tmp_path: Path) -> None:
    function = FUNCTIONS[name]
    before = compiled(function, function.source, tmp_path)
    applied = set()
    for each in transformation_registry.BY_LANGUAGE["c"]:
        try:
            changed = each.apply(function.source)
        except DoesNotApply as reason:
            assert len(str(reason)) > 20
            continue
        applied.add(each.name)
        assert changed.what and (" line" in changed.what or not changed.knobs)
        assert is_close(before, compiled(function, changed.source, tmp_path)), each.name
    assert applied >= WANTED[name]


@pytest.mark.parametrize("name", ["range", "transpose"])
def test_every_choice_of_a_declared_knob_keeps_the_result(name: str, tmp_path: Path) -> None:
    function = FUNCTIONS[name]
    before = compiled(function, function.source, tmp_path)
    for each in transformation_registry.BY_LANGUAGE["c"]:
        try:
            changed = each.apply(function.source)
        except DoesNotApply:
            continue
        declared = {knob.name: knob for knob in knobs.find(changed.source, language="c")}
        for knob in changed.knobs:
            for choice in declared[knob].choices[1::3]:
                source = knobs.apply(changed.source, {knob: choice}, language="c")
                assert is_close(before, compiled(function, source, tmp_path)), (knob, choice)


@pytest.mark.parametrize("name", ["softmax", "matmul"])
def test_transformations_compose(name: str, tmp_path: Path) -> None:
    """Up to 12 are applied, each to the result of those before it."""
    function, source, made = FUNCTIONS[name], FUNCTIONS[name].source, list[str]()
    while len(made) < 12 and (left := transformation_registry.applicable(source, "c")):
        each = next((change for change in left if change.name not in made[-6:]), left[0])
        source = found(each.name).apply(source).source
        made.append(each.name)
        if made.count(each.name) > 4:
            break
    assert len(made) > 1
    assert is_close(compiled(function, function.source, tmp_path),
                    compiled(function, source, tmp_path)), made


def test_jammed_matmul_fills_vectors_along_its_contiguous_index() -> None:
    changed = found("c-unroll-and-jam").apply(MATMUL)
    assert changed.what == "j unrolled and jammed, line 3" and changed.knobs == ("JAM",)
    assert "sum_of[lane] += a[i * k + p] * b[p * n + (j + lane)];" in changed.source


def test_transformed_source_is_plain_again_when_its_knobs_are_inlined(tmp_path: Path) -> None:
    changed = found("c-unroll-and-jam").apply(MATMUL)
    plain = knob_proposals.inlined(changed.source)
    assert "kopt" not in plain and "JAM" not in plain and "float sum_of[16];" in plain
    function = FUNCTIONS["matmul"]
    assert is_close(compiled(function, MATMUL, tmp_path), compiled(function, plain, tmp_path))


@pytest.mark.parametrize(("transformation", "body"), [
    ("c-accumulators", "for (long i = 1; i < n; i++) { sum += x[i]; out[i] = sum; }"),
    ("c-accumulators", "for (long i = 0; i < n; i++) { if (x[i] < 0) break; sum += x[i]; }"),
    ("c-accumulators", "for (long i = 0; i < n; i++) sum = x[i] - sum;"),
    ("c-accumulators", "for (long i = 0; i < n; i++) { sum += x[i]; sum *= 2; }"),
    ("c-accumulators", "for (long i = 0; i < n; i++) sum += other(x + i);"),
    ("c-accumulators", "for (long i = 0; i < n; i++) { sum += x[i]; n = n - 1; }"),
    ("c-accumulators", "long last = 0; for (long i = 0; i < n; i++) { sum += x[i]; last = i; }"),
    ("c-reciprocal", "for (long i = 0; i < n; i++) out[i] = x[i] / out[i];"),
    ("c-reciprocal", "for (long i = 0; i < n; i++) out[i / n] = x[i / n];"),
    ("c-reciprocal", "for (long i = 0; i < n; i++) { sum += 1; out[i] = x[i] / sum; }"),
    ("c-hoist", "for (long i = 0; i < n; i++) { sum += 1; out[i] = sqrtf(sum); }"),
    ("c-hoist", "for (long i = 0; i < n; i++) { change(&sum); out[i] = sqrtf(sum) * x[i]; }"),
    ("c-hoist", "for (long i = 0; i < n; i++) out[i] = sqrtf(x[0]);"),
    ("c-hoist", "for (long i = 0; i < n; i++) { ADD(sum, x[i]); out[i] = sqrtf(sum) * 2; }"),
    ("c-relaxed-math", "volatile float lost = 0; for (long i = 0; i < n; i++) sum += x[i];"),
    ("c-unroll-and-jam", "for (long i = 1; i < n; i++) { float *now = out + i * n;"
                         " const float *last = out + (i - 1) * n;"
                         " for (long j = 0; j < n; j++) now[j] = last[j] + x[j]; }"),
    ("c-unroll-and-jam", "for (long i = 1; i < n; i++)"
                         " for (long j = 0; j < n; j++) out[i * n + j] = out[(i - 1) * n + j];"),
    ("c-unroll-and-jam", "for (long i = 0; i < n; i++)"
                         " for (long j = 0; j < n; j++) out[j] += x[i * n + j];"),
    ("c-unroll-and-jam", "for (long i = 0; i < n; i++)"
                         " for (long j = 0; j < i; j++) out[i] += x[j];"),
    ("c-unroll-and-jam", "for (long i = 0; i < n; i++)"
                         " for (long j = 0; j < n; j++) { sum += x[j]; out[i] = sum; }"),
    ("c-unroll-and-jam", "for (long i = 0; i < n; i++)"
                         " for (long j = 0; j < n; j++) out[i + j] = x[i * n + j];"),
    ("c-unroll-and-jam", "for (long i = 0; i < n; i++) { float *o = out + i;"
                         " for (long j = 0; j < n; j++) o[j] = x[i * n + j]; }"),
    ("c-unroll-and-jam", "for (long i = 0; i < n; i++) for (long j = 0; j < n; j++)"
                         " { out[i * n + j] = x[j]; out[(i + 1) * n + j] = x[i]; }"),
    ("c-loop-order", "for (long j = 0; j < n; j++)"
                     " for (long i = 1; i < n; i++) out[i * n + j] = out[(i - 1) * n + j + 1];"),
    ("c-loop-order", "for (long j = 0; j < n; j++)"
                     " for (long i = 0; i < n; i++) out[i + j] = x[i * n + j];"),
    ("c-loop-order", "for (long i = 0; i < n; i++)"
                     " for (long j = 0; j < n; j++) out[2 * j + i] = x[j * n + i];"),
    ("c-unroll-and-jam", "for (long i = 0; i < n; i++)"
                         " for (long j = 0; j < n; j++) out[j + 2 * i] = x[i * n + j];"),
    ("c-loop-order", "for (long j = 0; j < n; j++) for (long i = 0; i < n; i++)"
                     " { long at = i + j; out[at * n + at] = x[i * n + j]; }"),
    ("c-loop-order", "for (long j = 0; j < n; j++)"
                     " for (long i = 0; i < n; i++) sum = sum * 0.5f + x[i * n + j];"),
    ("c-loop-order", "for (long j = 0; j < n; j++)"
                     " for (long i = j; i < n; i++) out[i * n + j] = x[i * n + j];"),
    ("c-loop-order", "for (long j = 0; j < n; j++)"
                     " for (long i = 0; i < n; i++) out[i * n + j] = other(x + i * n + j);"),
    ("c-loop-order", "\n#pragma omp parallel for\nfor (long j = 0; j < n; j++)"
                     " for (long i = 0; i < n; i++) out[j] += x[i * n + j];"),
    ("c-loop-order", "\n#pragma omp parallel for\nfor (long j = 0; j < n; j++)"
                     " for (long i = 0; i < n; i++)"
                     " { out[j] = x[i * n + j]; out[i * n + j] = 0; }"),
    ("c-loop-order", "\n#pragma omp parallel for firstprivate(n)\nfor (long j = 0; j < n; j++)"
                     " for (long i = 0; i < n; i++) out[i * n + j] = x[i * n + j];"),
    ("c-unroll-and-jam", "\n#pragma omp parallel for\nfor (long j = 0; j < n; j++)"
                         " for (long i = 0; i < n; i++) out[i * n + j] = x[i * n + j];"),
    ("c-loop-order", "long i, j; for (j = 0; j < n; j++)"
                     " for (i = 0; i < n; i++) out[i * n + j] = x[i * n + j]; sum = i;"),
    ("c-blocking", "for (long i = 0; i < n; i++)"
                   " for (long j = 0; j < n; j++) out[i * n + j] = out[j * n + i];"),
    ("c-blocking", "for (long i = 0; i < n; i++)"
                   " for (long j = 0; j < n; j++) out[i * n + j] = x[i * n + j];"),
])
def test_loop_that_would_change_its_meaning_is_left_alone(transformation: str, body: str) -> None:
    source = ("#include <math.h>\nfloat other(const float *x);\nvoid change(float *x);\n"
              "#define ADD(a, b) a += b\n"
              f"void f(const float *x, float *out, long n) {{ float sum = 0; {body} "
              "out[0] += sum; }\n")
    with pytest.raises(DoesNotApply):
        found(transformation).apply(source)


@pytest.mark.parametrize(("array", "assignment"), [
    ("float **A", "A[i][j] = x[i * n + j]"), ("float *A[n]", "A[i][j] = x[i * n + j]"),
    ("float A[n][n]", "A[i + 1][j] = A[i][j] + x[j]"), ("float A[n][n]", "A[i + j][j] = x[i]"),
    ("float A[n][n]", "A[j][0] += x[i * n + j]"), ("float A[n][n]", "A[i][j] = A[j][i]"),
    ("float A[n][n]", "{ A[i][j] = x[j]; A[i + 1][j] = x[i]; }")])
def test_arrays_whose_iterations_may_meet_are_left_alone(array: str, assignment: str) -> None:
    source = f"void f(long n, const float *x, {array}) {{ for (long i = 0; i < n - 1; i++)" \
        f" for (long j = 0; j < n - 1; j++) {assignment}; }}\n"
    for name in ("c-unroll-and-jam", "c-loop-order", "c-blocking"):
        with pytest.raises(DoesNotApply):
            found(name).apply(source)


def test_names_of_transformations_are_unique_and_each_says_what_it_does() -> None:
    every = transformation_registry.TRANSFORMATIONS
    assert len({each.name for each in every}) == len(every)
    assert all(each.aim and each.name.startswith(f"{'cuda' if language == 'hip' else language}-")
               for language, group in transformation_registry.BY_LANGUAGE.items()
               for each in group)


def test_source_that_cannot_be_parsed_has_no_transformations() -> None:
    assert transformation_registry.applicable("void f( {", "c") == ()
    assert transformation_registry.applicable(SOFTMAX, "cuda") == ()
    assert transformation_registry.applicable("", "c") == ()


def test_paged_attention_example_has_transformations() -> None:
    source = (EXAMPLES / "paged_attention_c" / "attention.c").read_text()
    names = {each.name for each in transformation_registry.applicable(source, "c")}
    assert names >= {"c-accumulators", "c-vector-math", "c-reciprocal"}


def found(name: str) -> Transformation:
    transformation = transformation_registry.find(name)
    assert transformation is not None
    return transformation


def test_comparison_notices_another_constant(tmp_path: Path) -> None:
    """`is_close`, which the tests above rely on, can be false."""
    function: CFunction = FUNCTIONS["softmax"]
    other = function.source.replace("o[i] /= total", "o[i] /= total * 1.001f")
    assert not is_close(compiled(function, function.source, tmp_path),
                        compiled(function, other, tmp_path))


def test_counter_that_all_lanes_share_is_counted_once(tmp_path: Path) -> None:
    """A loop that continues where the one before it ended is not repeated for each lane."""
    function, source = FUNCTIONS["matmul"], MATMUL
    for name in ("c-unroll-and-jam", "c-accumulators", "c-unroll-and-jam"):
        source = found(name).apply(source).source
    assert is_close(compiled(function, MATMUL, tmp_path), compiled(function, source, tmp_path))


def test_exchanged_and_blocked_loops_compute_exactly_the_same(tmp_path: Path) -> None:
    """Also if neither bound is a multiple of the block; each transformation applies only once."""
    for name, kind in (("column sums", "c-loop-order"), ("transpose", "c-blocking")):
        function, transformation = FUNCTIONS[name], found(kind)
        changed = transformation.apply(function.source)
        assert compiled(function, function.source, tmp_path) == compiled(
            function, changed.source, tmp_path)
        with pytest.raises(DoesNotApply):
            transformation.apply(changed.source)
    assert found("c-loop-order").apply(FUNCTIONS["column sums"].source).what == \
        "loops exchanged, line 3"


OTHERS = """static float twice(float x) { return 2.0f * x; }
void before(float *out, const float *x, int n, int m)
{
    /* reads { columns */
    for (int j = 0; j < m; j++)
        for (int i = 0; i < n; i++)
            out[i * m + j] = x[i * m + j] * JAM;
}
static float row(const float *x, int m) {
    float sum = 0.0f;
    for (int c = 0; c < m; c++) sum += x[c];
    return twice(sum);
}
void entry(float *out, const float *x, int n, int m) {
    for (int r = 0; r < n; r++) out[r] = row(x + r * m, m);
}
int main(void) { float sum = 0; for (int i = 0; i < 9; i++) sum += i * 0.5f; return sum > 1; }
"""


def test_only_the_entry_and_what_it_needs_is_changed() -> None:
    source = f"#define JAM 2\n{OTHERS}"
    other = source[source.index("void before"):source.index("static float row")]
    changes = {change.name: change for change in transformation_registry.applicable(
        source, "c", "entry")}
    assert "c-loop-order" not in changes and changes["c-accumulators"].what.endswith("line 12")
    for change in changes:
        transformation = transformation_registry.find(change)
        assert transformation is not None
        changed = transformation_registry.apply(transformation, source, "c", "entry").source
        assert other in changed and OTHERS.splitlines()[-1] in changed, change
    everywhere = {change.name for change in transformation_registry.applicable(source, "c")}
    assert "c-loop-order" in everywhere
