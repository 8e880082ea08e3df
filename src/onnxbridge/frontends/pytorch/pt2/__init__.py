"""`.pt2` files, read without running anything from them."""
