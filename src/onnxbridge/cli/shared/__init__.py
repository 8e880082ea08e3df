"""What several commands need: options, output, exit codes."""
