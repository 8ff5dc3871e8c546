"""Names of the C library, the compiler and CUDA that a kernel rarely needs."""

from __future__ import annotations

import re

from harness.audit.findings.watched_name import AuditRule, table
from harness.formats.text import words

_CODE = AuditRule("hidden-code", "flag", "reaches code or memory indirectly")
_EXEC = AuditRule("hidden-code", "reject", "makes memory executable")
_TAMPER = AuditRule("hidden-code", "reject", "accesses another process or its own code")
_FRAMES = AuditRule("frame-walk", "reject", "walks the stack")
_THREADS = AuditRule("threads", "flag", "may continue after the call")
_STREAM = AuditRule("threads", "flag", "works on a side stream that must be joined")
_NETWORK = AuditRule("network", "reject", "reaches the network")
_FILES = AuditRule("files", "flag", "reads or writes files")
_CLOCK = AuditRule("timing", "flag", "reads a clock or waits")
_EXIT = AuditRule("files", "flag", "ends the process")
_BLAS = AuditRule("delegation", "flag", "calls a library's computation")


MENTIONS = table(
    (_CODE, """dlopen dlmopen dlsym dlvsym dladdr dladdr1 dl_iterate_phdr syscall sigaction
        sigaltstack _GLOBAL_OFFSET_TABLE_ _DYNAMIC _r_debug r_debug link_map __libc_dlsym
        __libc_dlopen_mode PyRun_SimpleString PyRun_String PyEval_EvalCode PyGILState_Ensure
        PyImport_ImportModule Py_Initialize pkey_mprotect prctl seccomp memfd_create userfaultfd
        __malloc_hook cuModuleLoad cuModuleLoadData cuLibraryLoadData cuModuleGetFunction
        cudaMemPrefetchAsync cuCtxResetPersistingL2Cache cudaLimitPersistingL2CacheSize
        accessPolicyWindow cudaCtxResetPersistingL2Cache cudaDeviceSetLimit getauxval
        program_invocation_name io_uring_setup environ dlinfo"""),
    (_EXEC, "mprotect PROT_EXEC"),
    (_TAMPER, """ptrace process_vm_readv process_vm_writev process_madvise kcmp
        __clear_cache __builtin___clear_cache"""),
    (_FRAMES, """backtrace_symbols backtrace_symbols_fd _Unwind_Backtrace unw_getcontext unw_step
        __builtin_frame_address __builtin_return_address __libc_stack_end"""),
    (_THREADS, """pthread_create thrd_create vfork posix_spawn posix_spawnp execve execvp execlp
        execl execv setitimer timer_create cudaLaunchHostFunc cudaStreamAddCallback
        execvpe execle execveat fexecve forkpty pthread_kill tgkill sigqueue
        cuLaunchHostFunc pthread_atfork sched_setscheduler sched_setaffinity
        pthread_setaffinity_np jthread atexit on_exit __cxa_atexit"""),
    (_STREAM, """cudaStreamCreate cudaStreamCreateWithFlags cudaStreamCreateWithPriority
        cuStreamCreate cudaStreamNonBlocking hipStreamCreate hipStreamCreateWithFlags
        getStreamFromPool"""),
    (_NETWORK, """getaddrinfo gethostbyname curl_easy_init curl_easy_perform curl_global_init
        sockaddr_in sockaddr_un"""),
    (_FILES, """fopen fopen64 freopen fdopen openat open64 creat opendir tmpfile mkstemp shm_open
        shmget shmat ftruncate mkfifo fmemopen open_by_handle_at scandir nftw readlink ifstream
        ofstream fstream pread pwrite dup2 dup3 sendfile lseek fcntl ioctl getdents64"""),
    (_CLOCK, """clock_gettime clock_getres clock_nanosleep gettimeofday timespec_get ftime rdtsc
        rdtscp __rdtsc __rdtscp _rdtsc __builtin_ia32_rdtsc __builtin_ia32_rdtscp
        __builtin_readcyclecounter nanosleep usleep sched_yield getrusage clock64 globaltimer
        __globaltimer omp_get_wtime cudaEventElapsedTime cuEventElapsedTime hipEventElapsedTime
        steady_clock high_resolution_clock system_clock __nanosleep sleep_for wall_clock64"""),
    (_EXIT, "_exit _Exit quick_exit exit_group"),
    (_BLAS, """cublasSgemm cublasGemmEx cublasLtMatmul cudnnSoftmaxForward"""),
)
CALLS = table(
    (_CODE, "signal getenv secure_getenv setenv putenv"),
    (_FRAMES, "backtrace"),
    (_THREADS, "fork clone clone3 system popen raise kill alarm daemon"),
    (_NETWORK, "socket connect"),
    (_FILES, "open write pipe dup"),
    (_CLOCK, "time clock times sleep select poll"),
    (_EXIT, "exit"),
)
"""Common words, which count only as a call, and only if the source defines no such function."""

PREFIXES = (
    ("cblas_", _BLAS), ("LAPACKE_", _BLAS), ("mkl_", _BLAS), ("dnnl_", _BLAS), ("cublas", _BLAS),
    ("cudnn", _BLAS), ("cusparse", _BLAS), ("hipblas", _BLAS), ("rocblas", _BLAS),
    ("miopen", _BLAS), ("vDSP_", _BLAS), ("openblas_", _BLAS), ("nvrtc", _CODE),
    ("Elf64_", _CODE), ("Elf32_", _CODE), ("LLVM", _CODE), ("tcc_", _CODE), ("gcc_jit_", _CODE))
BLAS_CALLS = words("""
    sgemm_ dgemm_ hgemm_ sgemv_ dgemv_ sdot_ ddot_ saxpy_ daxpy_ snrm2_ sasum_ sscal_ sger_
    ssymm_ ssyrk_ strsm_ at::matmul at::softmax""")
STOLEN = words("""
    clock_gettime gettimeofday time clock cudaEventElapsedTime cudaEventRecord
    cudaEventSynchronize cudaDeviceSynchronize cuEventElapsedTime memcmp malloc free memcpy
    memset write read fwrite __tls_get_addr cudaLaunchKernel""")
"""Library functions. A non-static definition of one replaces the library's."""

TIMERS = words("""
    clock_gettime gettimeofday cudaEventElapsedTime cudaEventRecord cudaEventSynchronize
    cudaDeviceSynchronize cuEventElapsedTime""")

MATHEMATICS = frozenset(
    name + suffix for suffix in ("", "f", "l") for name in (
        "sqrt", "exp", "exp2", "expm1", "log", "log2", "log1p", "pow", "sin", "cos", "tan", "tanh",
        "sinh", "cosh", "erf", "erfc", "fabs", "floor", "ceil", "round", "fmin", "fmax", "ldexp"))
"""Functions that may fill a table when a library is loaded."""


_PREFIX = re.compile(r"^(?:__builtin_|__libc_|_{1,2})")
"""By which the C library and the compiler know their functions too, as `__libc_fork`."""


def lookup(name: str, *, called: bool) -> AuditRule | None:
    """Return the rule for a C name, None if it is not watched."""
    for known in (name, _PREFIX.sub("", name, count=1)):
        if (rule := MENTIONS.get(known) or (CALLS.get(known) if called else None)) is not None:
            return rule
    if name in BLAS_CALLS:
        return _BLAS
    return next((rule for prefix, rule in PREFIXES if name.startswith(prefix)), None)
