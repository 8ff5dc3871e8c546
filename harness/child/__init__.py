"""Programs that run inside the target's Python, loaded there as the package `kopt_child`.

Standard library only, plus torch, triton, numpy and pandas where a program needs them.
`__main__` starts one.
"""
