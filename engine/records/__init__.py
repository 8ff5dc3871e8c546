"""Files for people: summaries, logs, tables, the final report; no program reads them back.

Face: class_history, measured, model_prices, tip_promotion, writer.
"""
