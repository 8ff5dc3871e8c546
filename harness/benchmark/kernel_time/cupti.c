/* Measures the kernels of a process on an NVIDIA card by CUPTI's clock.

CUDA's driver loads this library (CUDA_INJECTION64_PATH) and calls InitializeInjection, which writes
a header line to a file KOPT_KERNEL_TIME.<pid>.<number>; of a process that ends without its exit
handlers the file has no more than the header. The exit handler appends a line for each kernel name (launches,
total ns, least ns, thread blocks, name), or a line with the reason why there are none.
KOPT_KERNEL_TIME is compiled in.
CUPTI is searched among the loaded libraries, then in KOPT_CUPTI (paths separated by colons), then
by the loader. Nothing here may end the process or print: it runs in the user's program.

Records are read without CUPTI's headers. In every CUpti_ActivityKernel from the 4th to the 13th
(CUPTI 9.1 to 13.5; compiled against NVIDIA's own headers of 11.8 to 13.5) the fields read here lie
at the same offsets; for an unknown version the name is not read. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef KOPT_KERNEL_TIME
#error "define KOPT_KERNEL_TIME: where to write"
#endif

enum { START = 16, END = 24, GRID = 52, NAME = 104 };
enum { KERNEL = 3, CONCURRENT_KERNEL = 10, FORCED = 1 };
enum { BUFFER = 4 << 20, SLOTS = 8192, MOST = 4096, LONGEST = 280, FILES = 1000 };

typedef void (*request_t)(uint8_t **, size_t *, size_t *);
typedef void (*complete_t)(void *, uint32_t, uint8_t *, size_t, size_t);

static struct {
    int (*version)(uint32_t *);
    int (*callbacks)(request_t, complete_t);
    int (*enable)(int);
    int (*flush)(uint32_t);
    int (*next)(uint8_t *, size_t, uint8_t **);
    int (*dropped)(void *, uint32_t, size_t *);
    int (*error_text)(int, const char **);
} cupti;

struct group { char *name; uint64_t launches, total, least, blocks; };

static struct group groups[SLOTS];
static struct group others = {.name = "(others)"};
static size_t used, lost, handed_out, given_back;
static pthread_mutex_t busy = PTHREAD_MUTEX_INITIALIZER;
static int named, written;
static uint32_t version;
static pid_t owner;
static char file_name[sizeof KOPT_KERNEL_TIME + 32], why[512];

static void set_reason(const char *what, const char *detail) {
    snprintf(why, sizeof why, "%s: %s", what, detail ? detail : "?");
}

/* A truncated name ends with a hash of the whole: long ones often differ only at their end. */
static struct group *group_of(const char *name) {
    char shown[LONGEST + 10];
    size_t length = name ? strlen(name) : 0;
    uint64_t hash = 1469598103934665603u;
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)name[i];
        if (i < LONGEST)
            shown[i] = (char)(c < 32 || c == 127 ? '?' : c);
        hash = (hash ^ c) * 1099511628211u;
    }
    if (length > LONGEST)
        snprintf(shown + LONGEST, sizeof shown - LONGEST, "~%08x", (unsigned)(hash ^ hash >> 32));
    else
        shown[length] = 0;
    for (size_t at = hash % SLOTS;; at = (at + 1) % SLOTS) {
        if (!groups[at].name) {
            if (used >= MOST || !(groups[at].name = strdup(shown)))
                return &others;
            used++;
            return &groups[at];
        }
        if (!strcmp(groups[at].name, shown))
            return &groups[at];
    }
}

static void add_record(const uint8_t *record) {
    uint32_t kind;
    uint64_t start, end, blocks = 1;
    const char *name = NULL;
    memcpy(&kind, record, sizeof kind);
    if (kind != KERNEL && kind != CONCURRENT_KERNEL)
        return;
    memcpy(&start, record + START, sizeof start);
    memcpy(&end, record + END, sizeof end);
    if (start == 0 || end <= start) { /* CUPTI has no time for this kernel */
        lost++;
        return;
    }
    for (int i = 0; i < 3; i++) {
        int32_t width;
        memcpy(&width, record + GRID + 4 * i, sizeof width);
        blocks *= width > 0 ? (uint64_t)width : 1;
    }
    if (named)
        memcpy(&name, record + NAME, sizeof name);
    struct group *group = group_of(name);
    if (group->launches == 0 || end - start < group->least)
        group->least = end - start;
    group->launches++;
    group->total += end - start;
    group->blocks += blocks;
}

static void request(uint8_t **buffer, size_t *size, size_t *records) {
    void *memory = NULL;
    *records = 0;
    *size = posix_memalign(&memory, 64, BUFFER) == 0 ? BUFFER : 0;
    *buffer = *size ? memory : NULL;
    if (*buffer)
        __atomic_add_fetch(&handed_out, 1, __ATOMIC_SEQ_CST);
}

static void complete(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid) {
    uint8_t *record = NULL;
    size_t count = 0;
    (void)size;
    pthread_mutex_lock(&busy);
    while (buffer && valid && !written && cupti.next(buffer, valid, &record) == 0)
        add_record(record);
    if (cupti.dropped && cupti.dropped(context, stream, &count) == 0)
        lost += count;
    given_back += buffer != NULL;
    pthread_mutex_unlock(&busy);
    free(buffer);
}

static void line(FILE *file, const struct group *group) {
    if (group->launches)
        fprintf(file, "kernel\t%llu\t%llu\t%llu\t%llu\t%s\n", (unsigned long long)group->launches,
                (unsigned long long)group->total, (unsigned long long)group->least,
                (unsigned long long)group->blocks, group->name);
}

static int failed(int result, const char *what) {
    const char *error_text = NULL;
    if (result == 0)
        return 0;
    if (cupti.error_text)
        cupti.error_text(result, &error_text);
    snprintf(why, sizeof why, "%s: %s (%d)", what,
             error_text ? error_text : "it does not say why", result);
    return 1;
}

/* A profiler that registers its callbacks after us receives our buffers, or later records. */
static void flush(void) {
    if (failed(cupti.flush(FORCED), "CUPTI does not give its records"))
        return;
    pthread_mutex_lock(&busy);
    if (__atomic_load_n(&handed_out, __ATOMIC_SEQ_CST) != given_back)
        set_reason("CUPTI has not given all records back", "another profiler may have them");
    pthread_mutex_unlock(&busy);
}

/* After exec a process keeps its pid: each of its programs has a file. */
static void create(void) {
    for (int i = 0; i < FILES; i++) {
        snprintf(file_name, sizeof file_name, "%s.%d.%d", KOPT_KERNEL_TIME, (int)owner, i);
        int fd = open(file_name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd >= 0) {
            dprintf(fd, "kopt-kernel-time\t1\t%u\t%d\n", version, named);
            close(fd);
            return;
        }
        if (errno != EEXIST)
            break;
    }
    file_name[0] = 0;
}

static void finish(void) {
    if (getpid() != owner) /* a fork launches nothing: these counts are its parent's */
        return;
    if (!why[0])
        flush();
    int fd = file_name[0] ? open(file_name, O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC) : -1;
    FILE *file = fd < 0 ? NULL : fdopen(fd, "a");
    if (!file)
        return;
    pthread_mutex_lock(&busy);
    written = 1;
    if (why[0])
        fprintf(file, "why\t%s\n", why);
    if (lost)
        fprintf(file, "lost\t%zu\n", lost);
    for (size_t i = 0; i < SLOTS; i++)
        line(file, &groups[i]);
    line(file, &others);
    fputs("end\n", file);
    fclose(file);
    pthread_mutex_unlock(&busy);
}

/* The driver's major CUDA version, 0 if unknown: a later CUPTI does not work with it. */
static int driver_major(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    int (*ask)(int *) = driver ? (int (*)(int *))dlsym(driver, "cuDriverGetVersion") : NULL;
    int number = 0;
    return ask && ask(&number) == 0 ? number / 1000 : 0;
}

static void *open_cupti(void) {
    static const char *const names[] = {"libcupti.so.13", "libcupti.so.12", "libcupti.so.11.8",
                                        "libcupti.so"};
    enum { COUNT = sizeof names / sizeof *names };
    int newest = driver_major();
    void *library = NULL;
    for (int i = 0; i < COUNT && !library; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_NOLOAD);
    char *places = strdup(getenv("KOPT_CUPTI") ? getenv("KOPT_CUPTI") : ""), *rest = NULL;
    for (char *at = places ? strtok_r(places, ":", &rest) : NULL; at && !library;
         at = strtok_r(NULL, ":", &rest)) {
        const char *suffix = strstr(at, "libcupti.so.");
        if (!(suffix && newest && atoi(suffix + strlen("libcupti.so.")) > newest))
            library = dlopen(at, RTLD_NOW | RTLD_LOCAL);
    }
    free(places);
    for (int i = newest && newest < 13; i < COUNT && !library; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    return library;
}

static void *symbol(void *library, const char *name) {
    void *address = dlsym(library, name);
    if (!address && !why[0])
        set_reason("CUPTI has no function", name);
    return address;
}

static void begin(void) {
    void *library = open_cupti();
    if (!library) {
        set_reason("CUPTI was not found",
                   "no libcupti.so beside torch, in a CUDA toolkit, or loaded");
        return;
    }
    cupti.error_text = (int (*)(int, const char **))dlsym(library, "cuptiGetResultString");
    cupti.dropped = (int (*)(void *, uint32_t, size_t *))
        dlsym(library, "cuptiActivityGetNumDroppedRecords");
    cupti.version = (int (*)(uint32_t *))symbol(library, "cuptiGetVersion");
    cupti.callbacks = (int (*)(request_t, complete_t))
        symbol(library, "cuptiActivityRegisterCallbacks");
    cupti.enable = (int (*)(int))symbol(library, "cuptiActivityEnable");
    cupti.flush = (int (*)(uint32_t))symbol(library, "cuptiActivityFlushAll");
    cupti.next = (int (*)(uint8_t *, size_t, uint8_t **))
        symbol(library, "cuptiActivityGetNextRecord");
    if (why[0] || failed(cupti.version(&version), "CUPTI has no version"))
        return;
    named = (version >= 12 && version <= 28) || (version >= 130000 && version < 130600);
    if (!failed(cupti.callbacks(request, complete), "CUPTI is taken"))
        failed(cupti.enable(CONCURRENT_KERNEL), "CUPTI does not record kernels");
}

__attribute__((visibility("default"))) int InitializeInjection(void) {
    static int begun;
    if (begun)
        return 1;
    begun = 1;
    owner = getpid();
    begin();
    create();
    atexit(finish);
    return 1;
}
