"""The panes, tables and bars that screens are made of."""
