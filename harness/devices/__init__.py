"""The CPU, NVIDIA and AMD devices behind one interface.

Face: inventory (find, survey, inventory), device (Device), datasheets, architectures.
"""
