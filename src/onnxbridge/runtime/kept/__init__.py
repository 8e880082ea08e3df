"""Recordings kept on disk, so that the first answer of a later process needs neither a plan nor a compiler.

`identity` says what an entry depends on, `store` where entries lie, `write` makes one of a recording, `entry` reads it back.
An entry is bytes and numbers: packed weights, the machine code that was linked, and where addresses go. Whatever is wrong
with one, or other than when it was made, it is left aside and the model is compiled as if there were none.
"""
