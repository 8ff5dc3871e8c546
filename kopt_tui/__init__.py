"""The `kopt` command and the dashboard.

Both read the journal and put requests into it; they change nothing else of a campaign.
"""

__version__ = "0.1.0"
