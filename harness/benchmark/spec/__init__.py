"""What a benchmark target declares: its command, metrics, correctness rule and config classes.

Face: command_target, metric_units, table_rules, validate.
"""
