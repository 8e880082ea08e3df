"""Writing Python source: identifiers, string literals and the breaking of long lines."""
