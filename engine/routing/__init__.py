"""Into which languages a kernel is worth rewriting: by its op, its source, and what is installed.

Face: op_class, rewrite_routes, source_language, translation_pairs.
"""
