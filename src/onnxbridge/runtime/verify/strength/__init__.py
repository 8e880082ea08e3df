"""How much an agreement proves."""
