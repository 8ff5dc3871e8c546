"""The final report of a campaign, as Markdown or as one HTML file.

Face: markdown_report, html_page.
"""
