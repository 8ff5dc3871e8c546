"""A stand-in for CUPTI on a machine without a GPU; its records have CUPTI's layout.

`kernels.txt` in the working folder lists the launched kernels: name, launches, ns of each, blocks,
separated by tabs. As in CUPTI, the records go through the buffers and callbacks of
`harness/benchmark/kernel_time/cupti.c`.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from harness.compile.c_compiler import compiler

CUPTI = r"""
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
typedef void (*request_t)(uint8_t **, size_t *, size_t *);
typedef void (*complete_t)(void *, uint32_t, uint8_t *, size_t, size_t);
enum { KERNEL_BYTES = 208, OTHER_BYTES = 64, ROOM = 1 << 16 };
static request_t request; static complete_t complete;
static uint8_t *buffer, *at; static size_t size; static int on; static char names[64][512];
static int set(const char *name) { return getenv(name) ? atoi(getenv(name)) : 0; }
int cuptiGetVersion(uint32_t *found) {
    *found = set("FAKE_VERSION") ? set("FAKE_VERSION") : 26; return 0; }
int cuptiActivityRegisterCallbacks(request_t one, complete_t two) {
    request = one; complete = two; return set("FAKE_BUSY"); }
int cuptiActivityEnable(int kind) { on = kind == 10; return 0; }
int cuptiGetResultString(int result, const char **text) {
    *text = result == 39 ? "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED" : "?"; return 0; }
int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *count) {
    *count = set("FAKE_DROPPED"); return 0; }
int cuptiActivityGetNextRecord(uint8_t *start, size_t valid, uint8_t **record) {
    uint32_t kind = 0;
    uint8_t *next = start;
    if (*record) {
        memcpy(&kind, *record, 4);
        next = *record + (kind == 10 ? KERNEL_BYTES : OTHER_BYTES);
    }
    if (next >= start + valid) return 12;
    *record = next; return 0; }
static void full(void) {
    if (buffer) complete(NULL, 0, buffer, size, at - buffer);
    buffer = NULL; }
static void put(uint32_t kind, uint64_t from, uint64_t to, int32_t blocks, const char *name) {
    size_t most, bytes = kind == 10 ? KERNEL_BYTES : OTHER_BYTES;
    int32_t one = 1;
    if (buffer && at + bytes > buffer + (size < ROOM ? size : ROOM)) full();
    if (!buffer) { request(&buffer, &size, &most); at = buffer; }
    memset(at, 0xAB, bytes); memcpy(at, &kind, 4); memcpy(at + 16, &from, 8);
    memcpy(at + 24, &to, 8);
    if (kind == 10) { memcpy(at + 52, &blocks, 4); memcpy(at + 56, &one, 4);
                      memcpy(at + 60, &one, 4); memcpy(at + 104, &name, sizeof name); }
    at += bytes; }
int cuptiActivityFlushAll(uint32_t forced) {
    FILE *file = fopen("kernels.txt", "r");
    unsigned long count, ns; int blocks, i = 0; uint64_t clock = 1000;
    while (on && forced == 1 && file && i < 64 &&
           fscanf(file, "%511[^\t]\t%lu\t%lu\t%d\n", names[i], &count, &ns, &blocks) == 4) {
        for (unsigned long n = 0; n < count; n++, clock += ns + 10) {
            if (n % 7 == 0) put(2, clock, clock + 5, 0, NULL);
            put(10, clock, clock + ns, blocks, set("FAKE_WILD") ? (char *)8 : names[i]);
        }
        i++;
    }
    if (set("FAKE_ZERO")) put(10, 0, 0, 1, "untimed");
    if (set("FAKE_TAKEN")) buffer = NULL; /* as if others had registered callbacks meanwhile */
    full(); return set("FAKE_FLUSH"); }
"""
HOST = r"""
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int count, char **words) { /* like CUDA, in as many processes as asked */
    for (int left = count > 1 ? atoi(words[1]) : 1; left > 1; left--) {
        if (fork() == 0) { execl(words[0], words[0], "1", NULL); _exit(9); }
        wait(NULL);
    }
    void *library = dlopen(getenv("CUDA_INJECTION64_PATH"), RTLD_NOW);
    int (*begin)(void) = library ? (int (*)(void))dlsym(library, "InitializeInjection") : NULL;
    if (!begin || begin() != 1 || begin() != 1) { puts(library ? "?" : dlerror()); return 3; }
    if (fork() == 0) exit(0); /* its counts would be its parent's */
    wait(NULL);
    if (getenv("HOST_LEAVES") && count > 1 && atoi(words[1]) == 1) _exit(0); /* a worker does so */
    return 0;
}
"""


def compiled(folder: Path, source: str, name: str, *flags: str) -> Path:
    """Compile C to the file `name` and return its path."""
    text = folder / f"{name}.c"
    text.write_text(source)
    subprocess.run([compiler(), "-O1", "-o", str(folder / name), str(text), *flags, "-ldl"],
                   check=True, timeout=60)
    return folder / name


def cupti(folder: Path) -> Path:
    return compiled(folder, CUPTI, "libcupti.so.12", "-shared", "-fPIC")


def launched(*kernels: tuple[str, int, int] | tuple[str, int, int, int]) -> str:
    """Return the text of kernels.txt: name, launches, ns of each and blocks (default 8)."""
    return "".join("\t".join(map(str, (*kernel, 8)[:4])) + "\n" for kernel in kernels)
