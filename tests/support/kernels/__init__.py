"""Small kernels, modules and functions that tests judge, rewrite or draft."""
