"""The CPU, NVIDIA and AMD devices behind one interface: what there is, and its state now.

Face: cpu, datasheets, device, inventory.
"""
