"""What each expansion is tried on: attributes, dtypes, shapes, edge values."""

from __future__ import annotations

from tests.hub.decompositions import cases_images as expand_table_images
from tests.hub.decompositions import cases_learned as expand_table_learned
from tests.hub.decompositions import cases_numbers as expand_table_numbers
from tests.hub.decompositions import cases_shapes as expand_table_shapes

CASES = [
    *expand_table_numbers.CASES,
    *expand_table_shapes.CASES,
    *expand_table_images.CASES,
    *expand_table_learned.CASES,
]
