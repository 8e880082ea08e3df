def push_transposes(model): pass
