"""A program's own call of its kernel gives the task's sizes, shapes, numbers and launch."""

from __future__ import annotations

import pytest

from engine.discovery.program import program_call
from engine.discovery.program.program_call import ProgramCall
from engine.discovery.project import device_sources, sources
from harness.tasks.target import Launch
from tests.engine.discovery.test_device_sources import KERNEL, LAUNCHER

ROWS = """
#include <vector>
// the launch in a comment is none: scale_rows<<<1, 1>>>(x, x, 1, 1, 1.0f);
__global__ void scale_rows(const float *in, float *out, int rows, int cols, float factor) {
    for (int c = threadIdx.x; c < cols; c += blockDim.x)
        out[blockIdx.x * cols + c] = in[blockIdx.x * cols + c] * factor;
}
"""
MAIN = """
int main() {
    const int rows = 512, cols = 1024;
    size_t n = (size_t)rows * cols;
    float *d_in, *d_out;
    cudaMalloc((void **)&d_in, n * sizeof(float));
    CHECK(cudaMalloc(&d_out, sizeof(float) * rows * cols));
    scale_rows<<<rows, 128>>>(d_in, d_out, rows, cols, 1.0f / sqrtf(64));
}
"""
WANTED = {"in": "rows, cols", "out": "rows, cols"}


def called(source: str, *others: str, path: str = "kernel.cu") -> ProgramCall:
    function = (device_sources.functions(path, source) if path.endswith(".cu")
                else sources.c_functions(source))[-1]
    return program_call.find(function, [source, *others])


def test_program_gives_shapes_sizes_numbers_and_launch() -> None:
    call = called(ROWS + MAIN)
    assert (call.shapes, call.scalars) == (WANTED, {"factor": "0.125"})
    assert call.sizes == ({"rows": 512, "cols": 1024},)
    assert call.launch == Launch(grid=("rows",), block=(128,))
    assert call.classes(["rows", "cols"]) == ["main: rows=512 cols=1024"]


@pytest.mark.parametrize(("before", "after"), [
    ("cudaMalloc((void **)&d_in, n * sizeof(float));", "size_t b = n * 4; cudaMalloc(&d_in, b);"),
    ("cudaMalloc((void **)&d_in, n * sizeof(float));", "hipMalloc(&d_in, n * sizeof *d_in);"),
    ("float *d_in, *d_out;", "float *d_out; float *d_in = make(rows * cols);"),
    ("(d_in, d_out, rows", "(thrust::raw_pointer_cast(v.data()), d_out, rows"),
    ("cudaMalloc((void **)&d_in, n * sizeof(float));", "cudaMalloc(&d_in, 512 * 1024 * 4);"),
    ("const int rows = 512", "int rows = argc > 1 ? atoi(argv[1]) : 1 << 9"),
    ("int main() {", "int rows_of_file = 512; int main() { // {")])
def test_length_of_an_array_is_read_from_its_allocation(before: str, after: str) -> None:
    helpers = "float *make(int n) { float *p = (float *)malloc(n * sizeof(float)); return p; }\n"
    main = MAIN.replace("size_t n", "thrust::device_vector<float> v(rows * cols);\n    size_t n")
    assert before in main
    call = called(ROWS + helpers + main.replace(before, after))
    assert call.shapes == WANTED and call.sizes == ({"rows": 512, "cols": 1024},)


WRAPPED = MAIN.replace("scale_rows<<<rows, 128>>>(d_in, d_out, rows, cols, 1.0f / sqrtf(64))",
                       "run(7, d_in, d_out, rows, cols)")
RUN = """
void scale(const float *x, float *y, int n, int width, int threads, float factor = 0.5f) {
    dim3 grid(n), block(threads);
    scale_rows<<<grid, block, threads * sizeof(float), 0>>>(x, y, n, width, factor);
}
void run(int which, const float *x, float *y, int n, int width) {
    for (int threads = 32; threads <= 1024; threads *= 2)
        scale(x, y, n, width, threads);
}
"""


def test_call_is_followed_through_functions_of_the_host() -> None:
    """A loop changes the threads, so that they become a constant with a default."""
    call = called(ROWS + RUN + WRAPPED)
    assert (call.shapes, call.scalars) == (WANTED, {"factor": "0.5"})
    assert call.sizes == ({"rows": 512, "cols": 1024},)
    assert call.launch == Launch(grid=("rows",), block=("threads",), shared_bytes="threads * 4",
                                 defaults={"threads": 256})


def test_call_in_another_file_is_found() -> None:
    assert called(ROWS, "int other(int n) { return n; }", MAIN).shapes == WANTED
    assert called(ROWS + RUN, WRAPPED).sizes == ({"rows": 512, "cols": 1024},)


def test_constant_of_another_file_is_a_number() -> None:
    """A knob could not change it, since candidates change the kernel's file only."""
    call = called(ROWS + MAIN.replace("rows, 128", "(rows * cols + BLOCK - 1) / BLOCK, BLOCK"),
                  "#define BLOCK 128\n")
    assert call.launch == Launch(grid=("(rows * cols + 128 - 1) // 128",), block=(128,))


def test_two_calls_give_two_classes() -> None:
    text = MAIN.replace("scale_rows<<<rows, 128>>>(d_in, d_out, rows, cols, 1.0f / sqrtf(64));",
                        "run(0, d_in, d_out, 64, 256); run(0, d_in, d_out, 512, 1024);")
    assert called(ROWS + RUN + text).classes(["rows", "cols"]) == [
        "64x256: rows=64 cols=256", "512x1024: rows=512 cols=1024"]


def test_size_of_a_vector_counts_its_elements() -> None:
    """The task's dtype is that of the elements."""
    source = """__global__ void copy(const float4 *x, float4 *y, int n) { y[0] = x[0]; }
int main() {
    int n = 1 << 10;
    float4 *a, *b;
    cudaMalloc(&a, n * sizeof(float4)); cudaMalloc(&b, sizeof(float4) * n);
    copy<<<1 / 0, 32>>>(a, b, n);
}
"""
    call = called(source)
    assert call.shapes == {"x": "n, 4", "y": "4, n"} and call.sizes == ({"n": 1024},)
    assert call.launch is None  # a division by zero


@pytest.mark.parametrize("rows", ["rows * rows", "1e400", "read()", "1.5 << 2", "rows / 0"])
def test_size_without_a_value_gives_no_class(rows: str) -> None:
    assert called(ROWS + MAIN.replace("rows = 512", f"rows = {rows}")).sizes == ()


def test_what_the_text_does_not_say_is_left_out() -> None:
    text = MAIN.replace("rows = 512, cols = 1024", "rows = read(), cols = 1024").replace(
        "CHECK(cudaMalloc(&d_out, sizeof(float) * rows * cols));", "d_out = pool(17);")
    call = called(ROWS + text)
    assert (call.shapes, call.sizes) == ({"in": "rows, cols"}, ())
    assert called(ROWS) == ProgramCall()


@pytest.mark.parametrize("allocation", [
    "float *x = malloc(n * sizeof(float)), *y = malloc(n * sizeof *y);",
    "float *x = (float *)aligned_alloc(64, n * 4); float *y = calloc(n, sizeof(float));",
    "float x[512 * 64]; static float y[512][64];", "float x[512][COLS], y[512][COLS];",
    "std::vector<float> x(n), y(n);", "float *x = new float[n], *y = new float[n];"])
def test_c_program_gives_shapes_and_sizes(allocation: str) -> None:
    source = f"""
#define COLS 64
void twice(const float *in, float *out, int rows, int cols) {{
    for (int i = 0; i < rows * cols; i++) out[i] = 2 * in[i];
}}
int main(void) {{
    int rows = 512; int n = rows * COLS;
    {allocation}
    twice(x, y, rows, COLS);
}}
"""
    call = called(source, path="twice.c")
    assert call.shapes == WANTED and call.launch is None
    inner = source.replace("twice(x, y,", "twice(&x[0], &y[0][0],")
    assert called(inner, path="twice.c").shapes == WANTED
    assert call.classes(["rows", "cols"]) == ["main: rows=512 cols=64"]


def test_launch_is_expressed_in_kernel_parameters_and_constants() -> None:
    assert called(KERNEL + LAUNCHER).launch == Launch(
        grid=("(cols + TILE - 1) // TILE",), block=("TILE",), shared_bytes="TILE * 4")


@pytest.mark.parametrize(("declarations", "launch", "grid", "block"), [
    ("dim3 grid(cdiv(n, TILE), 2);", "<<<grid, 32 * WARPS>>>",
     ("(cols + TILE - 1) // TILE", 2), ("32 * WARPS",)),
    ("dim3 grid(CEIL_DIV(n * (n / 4), (TILE)));", "<<<grid, TILE>>>",
     ("(cols * (cols // 4) + TILE - 1) // TILE",), ("TILE",)),
    ("int grid = (int)ceil((float)n / 256);", "<<<grid, 256>>>", ("(cols + 256 - 1) // 256",),
     (256,)),
    ("dim3 block(64, 4); int grid = n / block.y;", "<<<grid, block>>>", ("cols // 4",), (64, 4)),
    ("dim3 grid = dim3(n, 1, 1); dim3 block{32, 8};", "<<<grid, block>>>", ("cols", 1, 1),
     (32, 8)),
    ("const int threads = 128;", "<<<(unsigned int)((n + threads - 1) / threads), threads>>>",
     ("(cols + threads - 1) // threads",), ("threads",))])
def test_launch_is_read_through_dim3_casts_and_constants(
        declarations: str, launch: str, grid: tuple[object, ...],
        block: tuple[object, ...]) -> None:
    text = KERNEL + f'void go(int n) {{ {declarations} scale{launch}(x, out, sum, 1.0f, n); }}'
    assert called(text).launch == Launch(grid=grid, block=block)  # type: ignore[arg-type]


@pytest.mark.parametrize("launch", ["<<<blocks_of(n), 256>>>", "<<<n > 5 ? 1 : 2, 256>>>"])
def test_launch_that_is_not_arithmetic_is_not_read(launch: str) -> None:
    text = KERNEL + f"void go(int n) {{ scale{launch}(x, out, sum, 1.0f, n); }}"
    assert called(text).launch is None


def test_launch_may_use_a_size_that_the_kernel_does_not_take() -> None:
    text = KERNEL + "void go(int rows) { scale<<<rows * 2, 64>>>(x, out, sum, 1.0f, 7); }"
    assert called(text).launch == Launch(grid=("rows * 2",), block=(64,))


CASES = "struct Case { int rows, cols; };\n"
PAIRS = ({"rows": 512, "cols": 1024}, {"rows": 64, "cols": 4096})


@pytest.mark.parametrize(("loop", "sizes"), [
    ("int t[][2] = {{512, 1024}, {64, 4096}};\n"
     "for (int i = 0; i < 2; i++) run(0, a, b, t[i][0], t[i][1]);", PAIRS),
    ("Case t[] = {{512, 1024}, {64, 4096}};\n"
     "for (const auto &c : t) run(0, a, b, c.rows, c.cols);", PAIRS),
    ("const Case t[2] = {{512, 1024}, {64, 4096}};\nfor (size_t i = 0; "
     "i < sizeof(t) / sizeof(t[0]); ++i) run(0, a, b, t[i].rows, t[i].cols);", PAIRS),
    ("std::vector<int> t = {512, 64};\nfor (int n : t) run(0, a, b, n, 8 * 16);",
     ({"rows": 512, "cols": 128}, {"rows": 64, "cols": 128})),
    ("for (int n : {512, 64}) { int m = n * 2; run(0, a, b, n, m); }",
     ({"rows": 512, "cols": 1024}, {"rows": 64, "cols": 128})),
    ("for (int n = 1; n <= 1024; n *= 2) run(0, a, b, n, 128);", tuple(
        {"rows": rows, "cols": 128} for rows in (128, 256, 512, 1024))),
    ("for (int n = 256; n < 1024; n += 256) run(0, a, b, n, 128);", tuple(
        {"rows": rows, "cols": 128} for rows in (256, 512, 768)))])
def test_passes_of_a_loop_over_sizes_are_classes(
        loop: str, sizes: tuple[dict[str, int], ...]) -> None:
    main = f"{CASES}int main() {{ float *a = make(4), *b = make(4);\n{loop}\n}}\n"
    assert called(ROWS + RUN + main).sizes == sizes


@pytest.mark.parametrize("call", [
    "void (*kernel)(const float *, float *, int, int, float);\n    kernel = &scale_rows;\n"
    "    kernel<<<rows, 128>>>(d_in, d_out, rows, cols, 1.0f);",
    "time_it(scale_rows, d_in, d_out, rows, cols);",
    "dim3 grid, block;\n    grid.x = rows;\n    block.x = 128;\n    block.y = 1;\n"
    "    scale_rows<<<grid, block>>>(d_in, d_out, rows, cols, 1.0f);"])
def test_launch_through_a_pointer_or_with_assigned_dims_is_read(call: str) -> None:
    timed = """
__global__ void other(const float *in, float *out, int rows, int cols, float factor) {}
void time_it(void (*kernel)(const float *, float *, int, int, float), const float *in, float *out,
             int n, int m) { kernel<<<n, 128>>>(in, out, n, m, 1.0f); }
"""
    launch = "scale_rows<<<rows, 128>>>(d_in, d_out, rows, cols, 1.0f / sqrtf(64));"
    other = "time_it(other, d_in, d_out, 7, 7);\n    "
    source = ROWS + timed + MAIN.replace(launch, other + call)
    kernel = device_sources.functions("kernel.cu", source)[0]
    found = program_call.find(kernel, [source])
    assert kernel.name == "scale_rows" and found.sizes == ({"rows": 512, "cols": 1024},)
    assert found.shapes == WANTED and found.launch is not None
    assert [(*axes, 1, 1)[:3] for axes in (found.launch.grid, found.launch.block)] == [
        ("rows", 1, 1), (128, 1, 1)]


TILED = """
template <const int BM, const int BN>
__global__ void __launch_bounds__((BM * BN) / 4, 1)
tiled(int M, int N, float alpha, const float *A, float *C) {
    C[blockIdx.x * BM + threadIdx.x] = alpha * A[threadIdx.x] + C[threadIdx.x];
}
"""
RUNNER = """
void run_tiled(int M, int N, float alpha, float *A, float *C) {
    const uint BM = 16;
    if (M < 64) {
        const uint BM = 8;
        dim3 grid(M / BM);
        tiled<BM, 32><<<grid, 32>>>(M, N, alpha, A, C);
    }
}
"""
SWEEP = """
int main(int argc, char **argv) {
    std::vector<int> SIZE = {16, 32, 48, 56, 62};
    long m, n, most;
    most = SIZE[SIZE.size() - 1];
    float alpha = 0.5, *dA = nullptr, *dC = nullptr;
    cudaMalloc((void **)&dA, sizeof(float) * most * most);
    cudaMalloc((void **)&dC, sizeof(float) * most * most);
    for (int size : SIZE) {
        m = n = size;
        std::cout << "sizes(m=n) " << m << std::endl;
        run_tiled(m, n, alpha, dA, dC);
    }
}
"""


def test_header_is_read_with_its_runner_and_main_in_other_files() -> None:
    """Template arguments are numbers, since another file's names do not exist beside the kernel."""
    others = ["int main() { other(7); }", RUNNER, "void run_tiled(int, int);", SWEEP]
    [kernel] = device_sources.functions("tiled.cuh", TILED, others)
    assert kernel.name == "tiled<8,32>" and kernel.args[4].role == "inout"
    call = program_call.find(kernel, [TILED, *others])
    assert call.launch == Launch(grid=("M // 8",), block=(32,)) and call.scalars == {"alpha": "0.5"}
    assert call.shapes == {"A": "3844", "C": "3844"}
    assert [each["M"] for each in call.sizes] == [32, 48, 56, 62]


def test_template_arguments_that_the_compiler_deduces_are_read_from_the_arrays() -> None:
    source = """
template <typename T> __global__ void twice(const T *x, T *y, int n) { y[0] = x[0]; }
int main() {
    int n = 64;
    double *a, *b;
    cudaMalloc(&a, n * sizeof(double)); cudaMalloc(&b, n * sizeof(double));
    twice<<<1, 64>>>(a, b, n);
}
"""
    call = called(source)
    assert device_sources.functions("a.cu", source)[0].name == "twice<double>"
    assert call.shapes == {"x": "n", "y": "n"} and call.sizes == ({"n": 64},)


def test_length_that_is_no_product_of_sizes_is_a_number() -> None:
    main = MAIN.replace("size_t n = (size_t)rows * cols", "int n = 1 << rows / 64")
    assert called(ROWS + main).shapes["in"] == "256"


def test_array_that_is_allocated_by_a_case_of_a_table_has_the_sizes_of_the_kernel() -> None:
    main = CASES + """int main() {
    Case t[] = {{512, 1024}, {64, 4096}};
    for (int i = 0; i < 2; i++) {
        float *d_in, *d_out;
        cudaMalloc(&d_in, t[i].rows * t[i].cols * sizeof(float));
        cudaMalloc(&d_out, sizeof(float) * t[i].cols * t[i].rows);
        scale_rows<<<t[i].rows, 128>>>(d_in, d_out, t[i].rows, t[i].cols, 1.0f);
    }
}
"""
    call = called(ROWS + main)
    assert call.shapes == {"in": "rows, cols", "out": "cols, rows"} and call.sizes == PAIRS
    assert call.launch == Launch(grid=("rows",), block=(128,))
