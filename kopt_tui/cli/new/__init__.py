"""What `kopt new` asks and writes: the parameters of a kernel's or a benchmark's manifest.

Face: new_batch, new_benchmark, new_definition, new_facts, new_function, new_harness, new_kernel,
new_module, new_target, parameter_list, written_files.
"""
