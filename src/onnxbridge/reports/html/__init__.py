"""HTML reports: one page that needs no network, and its parts for notebooks."""
