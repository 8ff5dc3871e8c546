"""Pages about ops, hardware, languages and ways of working: read, searched, chosen for a slot.

Face: page_library, page_routing.
"""
