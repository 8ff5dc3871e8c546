"""Changes of a kernel's own source that kopt makes without a model: one small class each.

Face: transformation, transformation_registry.
"""
