"""Headers and libraries that belong to the C compiler, the system or the GPU toolkit."""

from __future__ import annotations

import os
import re

from harness.formats.text import words

_HEADERS = words("""
    assert.h complex.h ctype.h errno.h fenv.h float.h inttypes.h iso646.h limits.h locale.h math.h
    setjmp.h signal.h stdalign.h stdarg.h stdatomic.h stdbit.h stdbool.h stdckdint.h stddef.h
    stdint.h stdio.h stdlib.h stdnoreturn.h string.h tgmath.h threads.h time.h uchar.h wchar.h
    wctype.h alloca.h byteswap.h cpuid.h dirent.h dlfcn.h elf.h endian.h err.h execinfo.h fcntl.h
    features.h getopt.h glob.h libgen.h link.h malloc.h memory.h netdb.h poll.h pthread.h pwd.h
    regex.h sched.h search.h semaphore.h spawn.h strings.h syscall.h syslog.h termios.h ucontext.h
    unistd.h utime.h values.h omp.h openacc.h quadmath.h
    algorithm any array atomic bit bitset cassert cctype cerrno cfenv cfloat charconv chrono
    cinttypes climits clocale cmath compare complex concepts condition_variable cstdarg cstddef
    cstdint cstdio cstdlib cstring ctime cwchar deque exception execution filesystem format
    forward_list fstream functional future initializer_list iomanip ios iosfwd iostream istream
    iterator limits list locale map memory memory_resource mutex new numbers numeric optional
    ostream queue random ranges ratio regex set shared_mutex span sstream stack stdexcept
    streambuf string string_view system_error thread tuple type_traits typeinfo unordered_map
    unordered_set utility valarray variant vector version
    immintrin.h arm_neon.h arm_sve.h arm_acle.h arm_bf16.h arm_fp16.h altivec.h wasm_simd128.h
    x86intrin.h x86gprintrin.h mm_malloc.h mm3dnow.h ia32intrin.h cetintrin.h riscv_vector.h
    cuda.h cuda_runtime.h cuda_runtime_api.h cuda_fp16.h cuda_fp8.h cuda_bf16.h cuda_fp4.h
    cuda_fp6.h cuda_pipeline.h cuda_awbarrier.h cooperative_groups.h mma.h
    device_launch_parameters.h vector_types.h vector_functions.h math_constants.h sm_61_intrinsics.h
    curand_kernel.h
    device_functions.h cuda_device_runtime_api.h driver_types.h cuda_pipeline_primitives.h
    device_atomic_functions.h nvrtc_device_runtime.h texture_types.h library_types.h
    cuda_profiler_api.h nvtx3/nvToolsExt.h""")
_FOLDERS = ("sys/", "linux/", "asm/", "bits/", "gnu/", "net/", "netinet/", "arpa/", "cuda/std/",
            "cuda/", "cooperative_groups/", "cub/", "thrust/", "nv/", "crt/", "hip/", "rocwmma/",
            "torch/", "ATen/", "c10/", "pybind11/", "experimental/")
_INTRINSICS = re.compile(r"(?:[a-z]?mm|avx\w*|amx\w*|fma|f16c|bmi2?|popcnt|sse\w*|gfni|vaes|sha"
                         r"|adx|lzcnt|xsave\w*|prfchw|clflushopt|wmmintrin|movdir)intrin\.h")
_LIBRARIES = words("""
    m c pthread dl rt util gomp omp iomp5 gcc gcc_s stdc++ atomic quadmath cuda cudart cudart_static
    amdhip64 mvec""")
_SONAME = re.compile(r"^(?:lib)?(?P<name>[A-Za-z0-9_+-]+?)(?:\.so(?:\.[0-9]+)*|\.a)?$")


def is_standard_header(name: str) -> bool:
    """Return whether a header belongs to the compiler, the system, CUDA, HIP or torch."""
    name = name.removeprefix("./")
    if ".." in name.split("/") or name.startswith("/"):
        return False
    return name in _HEADERS or name.startswith(_FOLDERS) \
        or _INTRINSICS.fullmatch(name) is not None


def is_standard_library(name: str) -> bool:
    """Return whether a library, by its name or file name, belongs to the compiler or the device."""
    match = _SONAME.match(os.path.basename(name.removeprefix(":")))
    return match is not None and match["name"] in _LIBRARIES and name.count("/") == 0
