"""Pages about ops, hardware, languages and ways of working, and the table of strategies.

Face: page_files, page_library, page_routing, strategy_record, strategy_table.
"""
