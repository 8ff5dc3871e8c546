"""C functions that can be targets are found in a source."""

from __future__ import annotations

from engine.discovery.project import sources

SIGNATURES = """
#include <math.h>
// float commented(float *x) { }
static void hidden(float *x, int n) { }
int main(int argc, char **argv) { return 0; }
void unknown(struct thing *x) { }
const char *text = "void quoted(float *x) {";
extern void good(const float *restrict a, double b[], unsigned char *c, size_t n,
                 float scale)
{
    if (n) { }
}
"""


def test_only_exported_functions_with_supported_types_are_found() -> None:
    [found] = sources.c_functions(SIGNATURES)
    assert found.name == "good"
    assert [(arg.name, arg.dtype, arg.kind, arg.value) for arg in found.args] == [
        ("a", "float32", "input", None), ("b", "float64", "output", None),
        ("c", "uint8", "output", None), ("n", "int64", "scalar", "n"),
        ("scale", "float32", "scalar", None)]
