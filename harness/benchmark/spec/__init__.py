"""What a benchmark target declares: its command, metrics, correctness rule and config classes.

Face: command_target (CommandTarget), metric_units, row_classes, check_rule.
"""
