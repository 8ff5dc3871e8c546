"""The CPU, NVIDIA and AMD devices behind one interface.

Face: architectures, datasheets, device, inventory.
"""
