"""Views of what a campaign did, computed from its journal and stored nowhere else.

Face: history (Past, read), campaign_view (Story), spending (Meter), round_resume, lessons.
"""
