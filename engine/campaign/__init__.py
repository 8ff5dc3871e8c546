"""The folder of a campaign and the facts that stay fixed while it runs.

Face: setup (Setup, create, open_campaign), folder (Folder), device_choice, handover.
"""
