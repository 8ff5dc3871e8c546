"""Which pointers of a C function are outputs, where the source does not say const."""

from __future__ import annotations

import pytest

from engine.discovery.project import sources

HELPERS = """
#include <math.h>
#include <string.h>
static void add(float *a, float *b, int n) { for (int i = 0; i < n; i++) a[i] += b[i]; }
static float first(float *a, int n) { return n ? a[0] : first(a, n - 1); }
"""


@pytest.mark.parametrize(("function", "outputs"), [
    ("void f(float *x, float *y, int n) { for (int i = 0; i < n; i++) x[i] = y[i]; }", "x"),
    ("void f(float *x, float y[], int n) { float *p = y + 2; while (n--) *x++ = *p++; }", "x"),
    ("void f(float *x, float *y, int n) { float *p; p = y; p[n]++; }", "y"),
    ("void f(float *x, float *y, int n) { *(y + n) = x[0]; }", "y"),
    ("void f(float *x, float *y, int n) { memcpy(x, y, 4 * n); }", "x"),
    ("void f(float *x, float *y, int n) { add(x, y, n); }", "x"),
    ("void f(float *x, float *y, int n) { x[0] = expf(y[0]) + first(y, n); }", "xy"),
    ("void f(float *x, float *y, int n) { other(x, y, n); }", "xy"),
    ("void f(float *x, float *y, int n) { upload(y); x[n] = 1; }", "xy"),
    ("void f(float *x, float *y, int n) { _mm256_storeu_ps(x, _mm256_loadu_ps(y)); }", "x"),
    ("void f(float *x, const float *y, int n) { other(x, n); }", "x"),
    ("void f(float *x, float *y, int n) { struct S s; s.p = y; g(&s); x[0] = 1; }", "xy"),
    ("void f(float *x, float *y, int n) { MACRO }", "xy")])
def test_pointer_that_is_only_read_is_an_input(function: str, outputs: str) -> None:
    found = next(each for each in sources.c_functions(HELPERS + function) if each.name == "f")
    assert "".join(arg.name for arg in found.args if arg.role) == outputs


@pytest.mark.parametrize(("body", "both"), [
    ("float s = x[0]; for (int i = 0; i < n; i++) x[i] = y[i] - s;", "x"),
    ("for (int i = 0; i < n; i++) x[i] = expf(x[i]);", "x"),
    ("for (int i = 0; i < n; i++) x[i] /= y[0];", "x"),
    ("x[n]++;", "x"), ("*x += y[n];", "x"), ("float *p = x + 1; p[n] = p[0];", "x"),
    ("for (int i = 0; i < n; i++) { x[i] = 0; x[i] += y[i]; }", ""),
    ("_mm256_storeu_ps(x, _mm256_loadu_ps(x));", "x"), ("x[n] = other(x[n]);", "x"),
    ("FILL(x[n]); x[n]++;", ""), ("memmove(x, x + 1, 4 * n);", "x"),
    ("x[0] = sizeof(*x);", ""), ("memcpy(x, y, 4 * n); x[0] += 1;", ""),
    ("fill(x); y[0] = x[0];", ""),
    ("for (int i = 0; i < n; i++) { float *p = &x[i]; *p = 1; }", "")])
def test_pointer_that_is_read_before_it_is_written_is_an_input_too(body: str, both: str) -> None:
    source = HELPERS + f"void f(float *x, float *y, int n) {{ {body} }}"
    found = next(each for each in sources.c_functions(source) if each.name == "f")
    assert "".join(arg.name for arg in found.args if arg.role == "inout") == both
