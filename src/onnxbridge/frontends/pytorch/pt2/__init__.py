"""Safe loading of `.pt2` files: nothing in them is executed."""
