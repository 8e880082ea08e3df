"""Small faults planted in a hub model, which measure what a verification would have caught."""
