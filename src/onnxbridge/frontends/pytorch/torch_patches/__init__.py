"""All patches of PyTorch and torchvision by this frontend; each is active only inside its context manager.

A patch names the attribute that it replaces as a `Target`, with the parameters that the replacement relies on. On a release of
PyTorch where they differ, the patch is not applied, and a failing trace says so. The tests compare every target with the
installed release.
"""
