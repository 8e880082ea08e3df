"""Weight compression and its check."""
