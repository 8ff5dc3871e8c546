"""Names of Python libraries that a kernel rarely needs, and the reason to watch each."""

from __future__ import annotations

from harness.audit.findings.watched_name import AuditRule, table
from harness.formats.text import words

_CODE = AuditRule("hidden-code", "flag", "runs code that is not in the source")
_DECODE = AuditRule("hidden-code", "flag", "decodes hidden data")
_NATIVE = AuditRule("hidden-code", "flag", "reaches native code or raw memory")
_FRAMES = AuditRule("frame-walk", "reject", "walks frames or live objects")
_PROBE = AuditRule("frame-walk", "flag", "inspects the interpreter")
_THREADS = AuditRule("threads", "flag", "may continue after the call")
_NETWORK = AuditRule("network", "reject", "reaches the network")
_FILES = AuditRule("files", "flag", "reads or writes files")
_EXIT = AuditRule("files", "flag", "writes to a descriptor or ends the process")
_CLOCK = AuditRule("timing", "flag", "reads a clock, waits or measures itself")
_FLAGS = AuditRule("global-flags", "flag", "changes a setting of the whole process")
_PATCH = AuditRule("patched", "flag", "replaces functions of a library")

NAMES: dict[str, AuditRule | None] = table(
    (_CODE, """builtins.exec builtins.eval builtins.compile code.InteractiveInterpreter
        code.InteractiveConsole codeop runpy types.CodeType types.FunctionType pickle.loads
        pickle.load pickle.Unpickler dill cloudpickle importlib.util.spec_from_file_location
        importlib.machinery importlib.reload importlib._bootstrap importlib._bootstrap_external
        importlib.util.module_from_spec _imp imp atexit sys.meta_path sys.path_hooks
        sys.path.insert sys.path.append sys.path.extend sys.addaudithook site.addsitedir
        torch.utils.cpp_extension.load torch.ops.load_library torch.classes.load_library
        torch._C._jit torch.package zipimport"""),
    (_DECODE, """marshal base64 binascii zlib.decompress zlib.decompressobj lzma bz2 gzip
        codecs.decode codecs.getdecoder builtins.bytes.fromhex builtins.bytearray.fromhex"""),
    (_NATIVE, """ctypes cffi mmap triton.runtime.driver.active.utils.load_binary _ctypes"""),
    (_FRAMES, """sys._getframe sys._current_frames sys._getframemodulename sys.settrace
        sys.setprofile sys.monitoring inspect.stack inspect.currentframe inspect.trace
        inspect.getouterframes inspect.getinnerframes inspect.getframeinfo gc.get_objects
        gc.get_referrers gc.get_referents gc.callbacks traceback.walk_stack traceback.walk_tb
        traceback.extract_stack traceback.print_stack traceback.format_stack
        traceback.StackSummary threading.settrace threading.setprofile threading._active
        threading.settrace_all_threads threading.setprofile_all_threads sys._setprofileallthreads
        sys._settraceallthreads logging.Logger.findCaller logging.currentframe"""),
    (_PROBE, """builtins.__dict__ __main__ faulthandler tracemalloc sys.modules pdb bdb trace
        doctest sys.exc_info sys.last_traceback sys.last_exc"""),
    (_THREADS, """threading.Thread threading.Timer threading.Barrier _thread concurrent.futures
        multiprocessing asyncio os.fork os.forkpty os.posix_spawn os.posix_spawnp os.system
        os.popen os.execv os.execve os.execl os.execvp os.execlp os.spawnl os.spawnv os.spawnlp
        os.spawnvp subprocess _posixsubprocess threading._start_new_thread
        threading._start_joinable_thread weakref.finalize
        pty signal torch.multiprocessing torch.jit.fork torch.futures
        joblib greenlet gevent"""),
    (_NETWORK, """socket socketserver urllib.request urllib3 http requests httpx aiohttp ftplib
        smtplib poplib imaplib telnetlib xmlrpc ssl websockets paramiko pip ensurepip
        huggingface_hub torch.hub modelscope wget pycurl"""),
    (_FILES, """shelve sqlite3 dbm diskcache tempfile glob os.listdir os.scandir os.walk
        os.memfd_create numpy.memmap numpy.fromfile numpy.save numpy.savez numpy.savetxt
        torch.from_file torch.save joblib.dump joblib.load os.mkfifo os.symlink os.link
        os.path.expanduser os.path.expandvars os.getcwd os.getcwdb os.environ pathlib.Path.home
        pathlib.Path.cwd shutil os.remove os.unlink os.rename os.replace"""),
    (_EXIT, """os._exit os.kill os.killpg os.abort os.dup os.dup2 os.write os.pwrite os.pipe
        os.fdopen os.close os.closerange os.sendfile os.lseek os.ftruncate fcntl sys.exit
        sys.__stdout__ sys.__stderr__ sys.excepthook"""),
    (_CLOCK, """time datetime.datetime.now datetime.datetime.utcnow datetime.datetime.today
        timeit cProfile profile torch.utils.benchmark torch.profiler torch.autograd.profiler
        torch.cuda.Event.elapsed_time triton.testing.do_bench triton.testing.do_bench_cudagraph
        triton.testing.perf_report triton.testing.Benchmark os.times resource
        triton.language.extra.cuda.globaltimer triton.language.extra.cuda.smid
        triton.profiler torch.cuda._sleep select.select"""),
    (_FLAGS, """torch.set_float32_matmul_precision torch.set_default_dtype
        torch.set_default_device torch.set_default_tensor_type torch.set_num_threads
        torch.set_num_interop_threads torch.set_flush_denormal torch.use_deterministic_algorithms
        torch.set_deterministic_debug_mode torch.manual_seed torch.cuda.manual_seed
        torch.cuda.manual_seed_all torch.seed torch.set_rng_state torch.random.set_rng_state
        torch.random.manual_seed torch.cuda.set_rng_state numpy.random.seed random.seed
        torch.cuda.memory.change_current_allocator torch.cuda.set_per_process_memory_fraction
        torch.cuda.memory.set_per_process_memory_fraction os.putenv os.unsetenv
        os.environ.update os.environ.setdefault os.environ.pop os.environ.clear
        torch.cuda.cudart torch.utils.deterministic"""),
    (_PATCH, """unittest.mock mock forbiddenfruit wrapt torch.overrides.TorchFunctionMode
        torch.utils._python_dispatch torch.library.Library torch.library.impl
        torch.utils.rename_privateuse1_backend"""),
    (None, """os.path os.environ.get
        signal.Signals ctypes.c_void_p ctypes.c_int ctypes.c_int32 ctypes.c_int64
        ctypes.c_float ctypes.c_size_t ctypes.sizeof triton.testing.assert_close"""),
)

STREAMS = ("torch.cuda.Stream", "torch.cuda.stream", "torch.cuda.ExternalStream",
           "torch.cuda.set_stream", "torch.cuda.streams", "torch.Stream",
           "torch.cuda.StreamContext")
OPENERS = ("builtins.open", "io.open", "io.FileIO", "_io.open", "os.open", "codecs.open",
           "numpy.load", "numpy.genfromtxt", "numpy.loadtxt", "torch.load", "torch.jit.load",
           "torch.export.load", "pathlib.Path", "pathlib.PosixPath", "linecache.getlines",
           "linecache.getline", "tokenize.open", "fileinput.input")
RUNNERS = ("exec", "eval", "compile")
ATTRIBUTES = {
    "f_back": _FRAMES, "f_locals": _FRAMES, "f_globals": _FRAMES, "f_builtins": _FRAMES,
    "tb_frame": _FRAMES, "tb_next": _FRAMES, "gi_frame": _FRAMES, "cr_frame": _FRAMES,
    "ag_frame": _FRAMES, "f_code": _FRAMES, "f_trace": _FRAMES, "findCaller": _FRAMES,
    "_getframe": _FRAMES, "_current_frames": _FRAMES, "currentframe": _FRAMES,
    "get_objects": _FRAMES, "get_referrers": _FRAMES, "settrace": _FRAMES, "setprofile": _FRAMES,
    "load_module": _CODE, "exec_module": _CODE, "create_module": _CODE,
    "__traceback__": _PROBE, "__globals__": _PROBE, "__builtins__": _PROBE,
    "__subclasses__": _PROBE, "cell_contents": _PROBE, "__code__": _CODE,
    "from_address": _NATIVE, "from_buffer": _NATIVE, "elapsed_time": _CLOCK,
}
METHODS = words("__class__ __code__ __dict__ __globals__ __bases__ elapsed_time do_bench")
"""Attributes that are replaced on any object only to make it something else."""

WRITES = words("update setdefault pop popitem clear __setitem__ __delitem__ __ior__")
SETTERS = words("""
    builtins.setattr builtins.delattr builtins.object.__setattr__ builtins.type.__setattr__
    builtins.object.__delattr__ builtins.type.__delattr__""")
STOLEN = ("__torch_function__", "__torch_dispatch__", "__getattribute__")
"""Methods by which a tensor subclass may compute lazily or return something else."""

TIMERS = ("time", "torch.cuda.Event", "torch.Event", "torch.cuda.synchronize", "torch.allclose",
          "torch.testing", "torch.equal", "torch.isclose", "numpy.allclose", "numpy.testing",
          "numpy.isclose", "numpy.array_equal", "triton.testing", "torch.cuda.current_stream",
          "torch.Tensor.__eq__", "torch.Tensor.equal", "torch.Tensor.allclose",
          "torch.cuda.graph", "torch.cuda.CUDAGraph", "torch.profiler", "torch.autograd.profiler",
          "statistics", "json", "builtins", "timeit", "torch.empty", "torch.full",
          "torch.Tensor.copy_", "torch.Tensor.fill_")
"""Replacing one of these only serves to forge a time or a comparison."""

MODULES = words("""
    sys os gc inspect builtins importlib types threading _thread signal ctypes time atexit weakref
    traceback logging operator posix subprocess socket io""")
"""Modules whose use cannot be followed once they are handed on as values."""

SHADOWS = frozenset({"torch", "triton", "numpy", "time", "builtins", "sitecustomize",
                     "usercustomize", "json", "socket", "struct", "hashlib", "ctypes"})
HARNESS = frozenset({"harness", "kopt_tui", "kopt_child", "kopt_kernel", "kopt_reference"})


def lookup(name: str) -> AuditRule | None:
    """Return the rule of the longest prefix of a dotted name, None if none is watched."""
    while name:
        if name in NAMES:
            return NAMES[name]
        name = name.rpartition(".")[0]
    return None


def below(name: str, prefixes: tuple[str, ...]) -> bool:
    return any(name == p or name.startswith(p + ".") for p in prefixes)
