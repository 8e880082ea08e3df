"""What each expansion is tried on: attributes, dtypes, shapes, edge values."""

from __future__ import annotations

import expand_table_images
import expand_table_learned
import expand_table_numbers
import expand_table_shapes

CASES = [
    *expand_table_numbers.CASES,
    *expand_table_shapes.CASES,
    *expand_table_images.CASES,
    *expand_table_learned.CASES,
]
