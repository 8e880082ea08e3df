"""The driver: it runs a table of kernel calls, with helper threads, without returning to Python.

The leading thread processes the rows of the table in order. It publishes a call of several pieces in a ticket: its
number, how many shares it has, and how many of them were claimed, the first ones by the leader and the last ones by helpers,
so that each thread's own results stay in its cache. A thread claims a share by exchanging the ticket for one with this share
claimed; the leader continues when all are done. A helper that is late finds another ticket, and reads nothing of a call that it
has no share of.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from onnxbridge.runtime.executor.kernels.compile.jit import helper, yields
from onnxbridge.runtime.executor.kernels.numba.memory import longs
from onnxbridge.runtime.executor.kernels.run.call_table import (
    ARGUMENTS,
    DONE,
    FORM,
    FORMS,
    KERNEL,
    OPEN,
    ROW,
    TICKET,
    UNITS,
    WIDTH,
)

_BITS, _MASK = 12, (1 << 12) - 1  # of a ticket for each count; the number has the rest
_SPINS = 1 << 12  # polls, some microseconds, before the thread yields


def _at(builder, address):
    return builder.inttoptr(address, ir.IntType(64).as_pointer())


@intrinsic
def load(typing, address):
    """Atomic load with acquire semantics."""

    def made(context, builder, signature, args):
        return builder.load_atomic(_at(builder, *args), "acquire", 8)

    return types.int64(types.int64), made


def _changed(operation):
    """An atomic read-modify-write operation with acquire and release semantics."""

    @intrinsic
    def function(typing, address, value):
        def made(context, builder, signature, args):
            return builder.atomic_rmw(operation, _at(builder, args[0]), args[1], "acq_rel")

        return types.int64(types.int64, types.int64), made

    return function


store, add = _changed("xchg"), _changed("add")


@intrinsic
def exchange(typing, address, before, after):
    """Atomic compare-and-exchange; returns whether it succeeded."""

    def made(context, builder, signature, args):
        return builder.extract_value(builder.cmpxchg(_at(builder, args[0]), *args[1:], "acq_rel", "acquire"), 1)

    return types.boolean(types.int64, types.int64, types.int64), made


@intrinsic
def call(typing, row, unit, thread):
    """Call the kernel of a row for one piece."""

    def made(context, builder, signature, args):
        integer, real = ir.IntType(64), ir.FloatType()

        def cell(k):
            return builder.load(builder.gep(_at(builder, args[0]), [integer(k)]))

        done = builder.append_basic_block()
        switch = builder.switch(cell(FORM), done)
        for number, kinds in enumerate(FORMS):
            block = builder.append_basic_block()
            switch.add_case(integer(number), block)
            builder.position_at_end(block)
            values = []
            for k, kind in enumerate(kinds.rstrip("u"), ARGUMENTS):
                values.append(builder.bitcast(builder.trunc(cell(k), ir.IntType(32)), real) if kind == "f" else cell(k))
            values += args[1:] if kinds.endswith("u") else []
            kernel = ir.FunctionType(ir.VoidType(), [value.type for value in values])
            builder.call(builder.inttoptr(cell(KERNEL), kernel.as_pointer()), values)
            builder.branch(done)
        builder.position_at_end(done)
        return context.get_dummy_value()

    return types.void(*(types.int64,) * 3), made


@helper
def share(state, thread):
    """Do a share of the published call, if one is left; returns whether there was one."""
    ticket = load(state + TICKET)
    shares, first, last = ticket >> 2 * _BITS & _MASK, ticket >> _BITS & _MASK, ticket & _MASK
    if first + last >= shares:
        return False
    if exchange(state + TICKET, ticket, ticket + (1 if thread else 1 << _BITS)):
        k, row = shares - 1 - last if thread else first, load(state + ROW)
        units = longs(row)[UNITS]
        for unit in range(units * k // shares, units * (k + 1) // shares):
            call(row, unit, thread)
        add(state + DONE, 1)
    return True


def lead(state, rows, count, most, iterations, moves, count_moves):
    """Run a table of `count` calls, each in at most `most` shares, `iterations` times; some cells are incremented after each."""
    m = longs(moves)
    for _ in range(iterations):
        for row in range(rows, rows + 8 * WIDTH * count, 8 * WIDTH):
            units = longs(row)[UNITS]
            if most == 1 or units == 1:
                for unit in range(units):
                    call(row, unit, 0)
                continue
            shares, number = min(units, most, _MASK), (load(state + TICKET) >> 3 * _BITS) + 1 & (1 << 26) - 1
            store(state + DONE, 0)
            store(state + ROW, row)
            store(state + TICKET, (number << _BITS | shares) << 2 * _BITS)
            while share(state, 0):
                pass
            spins = 0
            while load(state + DONE) < shares:
                spins += 1
                if spins > _SPINS:
                    yields()
        for k in range(count_moves):
            longs(rows)[m[2 * k]] += m[2 * k + 1]


def help(state, thread):
    """Do shares for as long as a table is being run."""
    spins = 0
    while load(state + OPEN) != 0:
        spins = 0 if share(state, thread) else spins + 1
        if spins > _SPINS:
            yields()
