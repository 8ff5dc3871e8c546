/* Calls a kernel in a loop, times the loop and reports its time: none of this is Python.

   kopt builds this file (harness/compile/timed_loop.py), and a runner opens it before it loads a
   candidate. A C kernel's signature is prepended as CALL(entry, arguments). Python's functions are
   those of its stable ABI, declared here so that no headers are needed. System calls are made
   directly, because a library's functions can be replaced. Functions return 0, or -1 on an error,
   unless their comment says otherwise. */

#define _GNU_SOURCE
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define PAGE 65536 /* the largest page of the machines that kopt knows */
#define INTERRUPTED (-4)
#define SIGNALS 65
#define OTHER_MODE (-2)

typedef struct object PyObject;
PyObject *PyObject_Call(PyObject *, PyObject *, PyObject *);
PyObject *PyTuple_New(intptr_t);
PyObject *PyList_New(intptr_t);
PyObject *PyList_GetItem(PyObject *, intptr_t);
int PyList_SetItem(PyObject *, intptr_t, PyObject *);
intptr_t PyList_Size(PyObject *);
double PyFloat_AsDouble(PyObject *);
PyObject *PyErr_Occurred(void);
void PyErr_SetString(PyObject *, const char *);
void Py_DecRef(PyObject *);
extern PyObject *PyExc_OSError, _Py_NoneStruct;

union argument {
    void *p;
    double float64;
    float float32;
    int64_t int64;
    int32_t int32;
    int16_t int16;
    int8_t int8;
    uint8_t uint8;
};

/* Read-only once the channel is known. */
static union {
    struct {
        int known, channel, gpu, stamps, any_mode;
        int (*await)(void); /* of the driver: until the GPU has done what this process asked for */
        uint64_t key[2], mode; /* the processor's, before the kernel was loaded */
        uint64_t handlers[SIGNALS][8]; /* of each signal, as Linux keeps them; first its function */
    } of;
    char page[PAGE];
} state __attribute__((aligned(PAGE)));

static inline long system_call(long number, long a, long b, long c, long d)
{
#if defined(__x86_64__)
    long result;
    register long r10 __asm__("r10") = d;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10)
                     : "rcx", "r11", "memory");
    return result;
#elif defined(__aarch64__)
    register long x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d, x8 __asm__("x8") = number;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x1), "r"(x2), "r"(x3), "r"(x8) : "memory");
    return x0;
#else
    return syscall(number, a, b, c, d);
#endif
}

static inline int64_t now_ns(void)
{
    struct timespec now;
    system_call(SYS_clock_gettime, CLOCK_MONOTONIC, (long)&now, 0, 0);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static int read_all(int file, void *to, size_t size)
{
    for (char *at = to; size;) {
        long done = system_call(SYS_read, file, (long)at, size, 0);
        if (done == INTERRUPTED) continue;
        if (done <= 0) return -1;
        at += done;
        size -= done;
    }
    return 0;
}

static int write_all(const char *from, size_t size)
{
    while (size) {
        long done = system_call(SYS_write, state.of.channel, (long)from, size, 0);
        if (done == INTERRUPTED) continue;
        if (done <= 0) return -1;
        from += done;
        size -= done;
    }
    return 0;
}

#define ROTATE(x, by) ((x) << (by) | (x) >> (64 - (by)))
#define ROUND \
    a += b; b = ROTATE(b, 13) ^ a; a = ROTATE(a, 32); c += d; d = ROTATE(d, 16) ^ c; \
    a += d; d = ROTATE(d, 21) ^ a; c += b; b = ROTATE(b, 17) ^ c; c = ROTATE(c, 32);

/* SipHash-2-4 of two words, by the key. */
static uint64_t seal(uint64_t first, uint64_t second)
{
    const uint64_t *key = state.of.key, words[3] = {first, second, 16ULL << 56};
    uint64_t a = key[0] ^ 0x736f6d6570736575ULL, b = key[1] ^ 0x646f72616e646f6dULL;
    uint64_t c = key[0] ^ 0x6c7967656e657261ULL, d = key[1] ^ 0x7465646279746573ULL;
    for (int i = 0; i < 3; i++) {
        d ^= words[i];
        ROUND ROUND
        a ^= words[i];
    }
    c ^= 0xff;
    ROUND ROUND ROUND ROUND
    return a ^ b ^ c ^ d;
}

static char *decimal(char *at, uint64_t value)
{
    char digits[20];
    int count = 0;
    do digits[count++] = '0' + value % 10; while (value /= 10);
    while (count) *at++ = digits[--count];
    return at;
}

static char *text(char *at, const char *from)
{
    while (*from) *at++ = *from++;
    return at;
}

/* Return whether a signal handler has changed since the kernel was loaded; restore it if requested.
   Python's handlers run after the loop, before returned values are copied. */
static int other_handlers(int set_back)
{
    int others = 0;
    for (int number = 1; number < SIGNALS; number++) {
        uint64_t now[8] = {0};
        if (number == 32 || number == 33) continue; /* the C library's own */
        if (system_call(SYS_rt_sigaction, number, 0, (long)now, 8)
            || now[0] == state.of.handlers[number][0])
            continue;
        others = 1;
        if (set_back) system_call(SYS_rt_sigaction, number, (long)state.of.handlers[number], 0, 8);
    }
    return others;
}

/* Return how this thread computes with floating-point numbers: rounding, tiny numbers, traps. */
static uint64_t float_mode(void)
{
    if (state.of.any_mode) return 0;
#if defined(__x86_64__)
    uint32_t vector;
    uint16_t old;
    __asm__ volatile("stmxcsr %0" : "=m"(vector));
    __asm__ volatile("fnstcw %0" : "=m"(old));
    return (uint64_t)old << 32 | (vector & 0xffc0); /* the lowest bits say what has happened */
#elif defined(__aarch64__)
    uint64_t mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
#else
    return 0;
#endif
}

/* Send a message that the operating system stamps with the time; nobody waits for it. */
static int stamp(void)
{
    if (state.of.stamps < 0) return 0;
    return system_call(SYS_write, state.of.stamps, (long)"", 1, 0) == 1 ? 0 : -1;
}

/* Wait for a word of the owner, which it sends when the arguments' contents are in place. */
static int await_start(uint64_t *word)
{
    other_handlers(1);
    return write_all("{}\n", 3) || read_all(state.of.channel, word, sizeof *word);
}

static int report(uint64_t word, int64_t ns, int stop)
{
    if (other_handlers(0)) return -1;
    char line[80], *end = text(line, "{\"ns\": ");
    end = text(decimal(end, ns), ", \"seal\": ");
    end = text(decimal(end, seal(word, ns) >> 2), "}\n");
    if (write_all(line, end - line)) return -1;
    /* all threads stop before the owner's own signal could arrive */
    if (stop) system_call(SYS_kill, system_call(SYS_getpid, 0, 0, 0, 0), SIGSTOP, 0, 0);
    return 0;
}

/* Read the key that seals reports from a file; only the first call has an effect. Only on a GPU do
   functions of Python run around the calls; `await` is the driver's function that waits for it.
   `stamps` is a socket for messages at the start and the end of the calls, or -1. With `any_mode` a
   call may leave the processor in another mode. */
EXPORT int kopt_open(int channel, int key, int gpu, int (*await)(void), int stamps, int any_mode)
{
    if (state.of.known) return 0;
    if (key >= 0 && read_all(key, state.of.key, sizeof state.of.key)) return -1;
    for (int number = 1; number < SIGNALS; number++)
        system_call(SYS_rt_sigaction, number, 0, (long)state.of.handlers[number], 8);
    state.of.channel = channel;
    state.of.gpu = gpu;
    state.of.await = await;
    state.of.stamps = stamps;
    state.of.any_mode = any_mode;
    state.of.mode = float_mode();
    state.of.known = 1;
    return system_call(SYS_mprotect, (long)&state, sizeof state, PROT_READ, 0) ? -1 : 0;
}

#ifdef CALL
/* Return the nanoseconds of calls, each with a row of arguments; OTHER_MODE if they, or the loading
   of the kernel, left the processor in another mode. */
EXPORT int64_t kopt_run(void *entry, const union argument *rows, const int32_t *order,
                        int64_t calls)
{
    int64_t began = now_ns();
    for (int64_t i = 0; i < calls; i++) {
        const union argument *a = rows + (int64_t)order[i] * ARGUMENTS;
        CALL(entry, a);
    }
    int64_t ns = now_ns() - began;
    return float_mode() == state.of.mode ? ns : OTHER_MODE;
}

/* Say that all is ready, wait for the start, and report the time of these calls; OTHER_MODE as in
   kopt_run. */
EXPORT int kopt_block(void *entry, const union argument *rows, const int32_t *order, int64_t calls,
                    int stop)
{
    uint64_t word;
    if (await_start(&word) || stamp()) return -1;
    int64_t ns = kopt_run(entry, rows, order, calls);
    if (ns < 0) return OTHER_MODE;
    return stamp() ? -1 : report(word, ns, stop);
}
#endif

static int step(PyObject *function)
{
    if (function == &_Py_NoneStruct) return 0;
    if (!state.of.gpu) return -1;
    PyObject *none = PyTuple_New(0);
    PyObject *result = PyObject_Call(function, none, NULL);
    Py_DecRef(none);
    if (!result) return -1;
    Py_DecRef(result);
    return 0;
}

/* Like kopt_block, for a function of Python and a list of tuples of its arguments: return the list
   of what it returned. Around the calls are steps, or None: `fetch` before all, with a start of its
   own; `ready` before the clock; `begin`, `end` and `await` within it. `elapsed` returns the
   milliseconds to report, by another clock. Last, the driver waits for the GPU: Python cannot
   replace that. */
EXPORT PyObject *kopt_python_block(PyObject *function, PyObject *rows, PyObject *fetch,
                                 PyObject *ready, PyObject *begin, PyObject *end, PyObject *await,
                                 PyObject *elapsed, int stop)
{
    uint64_t word;
    intptr_t calls = PyList_Size(rows);
    PyObject *results = PyList_New(calls);
    if (!results) return NULL;
    if (fetch != &_Py_NoneStruct && (await_start(&word) || step(fetch))) goto failed;
    if (await_start(&word) || step(ready) || stamp()) goto failed;
    uint64_t mode = float_mode();
    int64_t began = now_ns();
    if (step(begin)) goto failed;
    for (intptr_t i = 0; i < calls; i++) {
        PyObject *result = PyObject_Call(function, PyList_GetItem(rows, i), NULL);
        if (!result || PyList_SetItem(results, i, result)) goto failed;
    }
    if (step(end) || step(await)) goto failed;
    int64_t ns = -1;
    if (elapsed != &_Py_NoneStruct && state.of.gpu) {
        PyObject *none = PyTuple_New(0), *ms = PyObject_Call(elapsed, none, NULL);
        Py_DecRef(none);
        if (!ms) goto failed;
        ns = (int64_t)(PyFloat_AsDouble(ms) * 1e6);
        Py_DecRef(ms);
        if (ns < 0 || PyErr_Occurred()) goto failed;
    }
    if (state.of.await && state.of.await()) goto failed;
    if (ns < 0) ns = now_ns() - began;
    if (float_mode() != mode) goto failed;
    if (!stamp() && !report(word, ns, stop)) return results;
failed:
    Py_DecRef(results);
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_OSError, "the channel is closed, the GPU failed, a step needs a GPU, "
                        "or a call has set a signal handler or the processor's "
                        "floating-point mode");
    return NULL;
}
