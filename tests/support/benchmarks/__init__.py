"""Projects with benchmarks of their own, and stand-ins for the profilers that confirm them."""
