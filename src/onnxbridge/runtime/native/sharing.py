"""The code that runs lists of calls, in LLVM's language: alone, or shared by threads.

A thread that leads and finds the rest of a row with a helper that does not come to an end fetches that helper to its own
processor: where other processes keep the system busy a helper may have been stopped in the middle of a piece, and would get
its processor back only after their slice of time. Who shares is told in `gate`, sixteen int64 for each thread:

    gate[0] the list that is open, [1] helpers, [2] the leader's processor and [3] the others (masks, each by its address),
    [4] whether some helper was fetched, [8] helpers inside; gate[16 * (part + 1)] the row that a thread is at,
    counted from 1 (-1 between rows, 0 outside), [+ 1] its number for the system, [+ 2] whether it was fetched
"""

from __future__ import annotations

NAMES = ("onnxbridge_pieces", "onnxbridge_alone", "onnxbridge_lead", "onnxbridge_follow")
_PATIENCE = 50_000  # ticks of the processor's clock: beyond twice the time of a piece, a helper is taken to be stopped

ALONE = """
define void @onnxbridge_pieces(i64 %function, ptr %arguments, i64 %units) {
entry:
 %f = inttoptr i64 %function to ptr
 %a = ptrtoint ptr %arguments to i64
 br label %loop
loop:
 %u = phi i64 [0, %entry], [%u1, %body]
 %more = icmp slt i64 %u, %units
 br i1 %more, label %body, label %done
body:
 call void %f(i64 %a, i64 %u, i64 0)
 %u1 = add i64 %u, 1
 br label %loop
done:
 ret void
}

define void @onnxbridge_alone(ptr %table, i64 %count) {
entry:
 br label %loop
loop:
 %i = phi i64 [0, %entry], [%i1, %body]
 %more = icmp slt i64 %i, %count
 br i1 %more, label %body, label %done
body:
 %o = mul i64 %i, 3
 %p0 = getelementptr i64, ptr %table, i64 %o
 %p1 = getelementptr i64, ptr %p0, i64 1
 %p2 = getelementptr i64, ptr %p0, i64 2
 %f = load i64, ptr %p0
 %a = load ptr, ptr %p1
 %n = load i64, ptr %p2
 call void @onnxbridge_pieces(i64 %f, ptr %a, i64 %n)
 %i1 = add i64 %i, 1
 br label %loop
done:
 ret void
}
"""

_TEXT = """
declare void @onnxbridge_yield()
declare void @onnxbridge_place(i64, i64, i64)
declare void @PAUSE
declare i64 @llvm.readcyclecounter()

define internal void @share(ptr %table, i64 %count, ptr %state, ptr %gate, i64 %part) {
entry:
 %leads = icmp eq i64 %part, 0
 %one = select i1 %leads, i64 1, i64 4294967296
 %ro = add i64 %part, 1
 %ri = mul i64 %ro, 16
 %report = getelementptr i64, ptr %gate, i64 %ri
 %called = getelementptr i64, ptr %report, i64 2
 %took = alloca i64
 store i64 0, ptr %took
 br label %loop
loop:
 %i = phi i64 [0, %entry], [%i1, %next]
 %i1 = add i64 %i, 1
 %more = icmp slt i64 %i, %count
 br i1 %more, label %row, label %done
row:
 store atomic i64 %i1, ptr %report monotonic, align 8
 %o = mul i64 %i, 3
 %p0 = getelementptr i64, ptr %table, i64 %o
 %p1 = getelementptr i64, ptr %p0, i64 1
 %p2 = getelementptr i64, ptr %p0, i64 2
 %fi = load i64, ptr %p0
 %f = inttoptr i64 %fi to ptr
 %a = load i64, ptr %p1
 %n = load i64, ptr %p2
 %so = mul i64 %i, 16
 %claimed = getelementptr i64, ptr %state, i64 %so
 %finished = getelementptr i64, ptr %claimed, i64 8
 br label %claim
claim:
 %so_far = atomicrmw add ptr %claimed, i64 %one acq_rel
 %front = and i64 %so_far, 4294967295
 %back = lshr i64 %so_far, 32
 %left0 = sub i64 %n, %back
 %some = icmp slt i64 %front, %left0
 %last = sub i64 %left0, 1
 %u = select i1 %leads, i64 %front, i64 %last
 br i1 %some, label %work, label %idle
work:
 %began = CLOCK
 call void %f(i64 %a, i64 %u, i64 %part)
 %ended = CLOCK
 %spent = sub i64 %ended, %began
 store i64 %spent, ptr %took
 %before = atomicrmw add ptr %finished, i64 1 release
 %call = load atomic i64, ptr %called monotonic, align 8
 %guest = icmp ne i64 %call, 0
 br i1 %guest, label %leave, label %claim
leave:
 call void @onnxbridge_yield()
 br label %claim
idle:
 store atomic i64 -1, ptr %report monotonic, align 8
 %twice = load i64, ptr %took
 %double = shl i64 %twice, 1
 %patience = add i64 %double, PATIENCE
 %now0 = CLOCK
 br label %wait
wait:
 %since = phi i64 [%now0, %idle], [%since, %again], [%now, %rest], [%now, %fetch]
 %spins = phi i64 [0, %idle], [%spins1, %again], [0, %rest], [0, %fetch]
 %d = load atomic i64, ptr %finished acquire, align 8
 %over = icmp sge i64 %d, %n
 br i1 %over, label %finish, label %look
look:
 %now = CLOCK
 %waited = sub i64 %now, %since
 %late = icmp sgt i64 %waited, %patience
 %fetches = and i1 %late, %leads
 br i1 %fetches, label %fetch, label %again
again:
 call void @PAUSE
 %spins1 = add i64 %spins, 1
 %long = icmp sgt i64 %spins1, 2000
 br i1 %long, label %rest, label %wait
fetch:
 call void @place(ptr %gate, i64 %i1, i64 1)
 call void @onnxbridge_yield()
 br label %wait
rest:
 call void @onnxbridge_yield()
 br label %wait
finish:
 br i1 %leads, label %free, label %next
free:
 call void @place(ptr %gate, i64 0, i64 0)
 br label %next
next:
 br label %loop
done:
 ret void
}

; With 1, helpers that are at a row (0: anywhere in the list) come to the leader's processor, where they are not kept waiting.
; With 0, all that came go back to the other processors.
define internal void @place(ptr %gate, i64 %row, i64 %near) {
entry:
 %countp = getelementptr i64, ptr %gate, i64 1
 %which = sub i64 3, %near
 %maskp = getelementptr i64, ptr %gate, i64 %which
 %anyp = getelementptr i64, ptr %gate, i64 4
 %any = load i64, ptr %anyp
 %asked = or i64 %any, %near
 %some = icmp ne i64 %asked, 0
 br i1 %some, label %begin, label %done
begin:
 %count = load i64, ptr %countp
 %mask = load i64, ptr %maskp
 %kept = and i64 %any, %near
 store i64 %kept, ptr %anyp
 %back = icmp eq i64 %near, 0
 %all = icmp eq i64 %row, 0
 br label %loop
loop:
 %k = phi i64 [0, %begin], [%k1, %next]
 %k1 = add i64 %k, 1
 %more = icmp slt i64 %k, %count
 br i1 %more, label %look, label %done
look:
 %ro = add i64 %k, 2
 %ri = mul i64 %ro, 16
 %report = getelementptr i64, ptr %gate, i64 %ri
 %threadp = getelementptr i64, ptr %report, i64 1
 %called = getelementptr i64, ptr %report, i64 2
 %at = load atomic i64, ptr %report monotonic, align 8
 %here = icmp eq i64 %at, %row
 %inside = icmp ne i64 %at, 0
 %held = select i1 %all, i1 %inside, i1 %here
 %meant = or i1 %held, %back
 %there = load atomic i64, ptr %called monotonic, align 8
 %not = icmp ne i64 %there, %near
 %now = and i1 %meant, %not
 br i1 %now, label %move, label %next
move:
 store atomic i64 %near, ptr %called monotonic, align 8
 store i64 %near, ptr %anyp
 %thread = load i64, ptr %threadp
 call void @onnxbridge_place(i64 %thread, i64 128, i64 %mask)
 br label %next
next:
 br label %loop
done:
 ret void
}

define void @onnxbridge_lead(ptr %table, i64 %count, ptr %state, ptr %gate) {
entry:
 call void @share(ptr %table, i64 %count, ptr %state, ptr %gate, i64 0)
 %inside = getelementptr i64, ptr %gate, i64 8
 store atomic i64 0, ptr %gate seq_cst, align 8
 %began = CLOCK
 br label %wait
wait:
 %since = phi i64 [%began, %entry], [%since, %again], [%now, %fetch]
 %n = load atomic i64, ptr %inside seq_cst, align 8
 %none = icmp eq i64 %n, 0
 br i1 %none, label %done, label %look
look:
 %now = CLOCK
 %waited = sub i64 %now, %since
 %late = icmp sgt i64 %waited, PATIENCE
 br i1 %late, label %fetch, label %again
fetch:
 call void @place(ptr %gate, i64 0, i64 1)
 call void @onnxbridge_yield()
 br label %wait
again:
 call void @PAUSE
 br label %wait
done:
 call void @place(ptr %gate, i64 0, i64 0)
 ret void
}

define void @onnxbridge_follow(ptr %table, i64 %count, ptr %state, ptr %gate, i64 %part, i64 %ticket) {
entry:
 %inside = getelementptr i64, ptr %gate, i64 8
 %in = atomicrmw add ptr %inside, i64 1 seq_cst
 %open = load atomic i64, ptr %gate seq_cst, align 8
 %mine = icmp eq i64 %open, %ticket
 br i1 %mine, label %work, label %done
work:
 call void @share(ptr %table, i64 %count, ptr %state, ptr %gate, i64 %part)
 br label %done
done:
 %ro = add i64 %part, 1
 %ri = mul i64 %ro, 16
 %report = getelementptr i64, ptr %gate, i64 %ri
 store atomic i64 0, ptr %report monotonic, align 8
 %out = atomicrmw sub ptr %inside, i64 1 seq_cst
 ret void
}
"""


def text(x86: bool, placing: bool) -> str:
    """The module of NAMES; `placing` if threads can be put on processors."""
    made = (ALONE + _TEXT).replace("PATIENCE", str(_PATIENCE))
    if not placing:
        made = made.replace(
            "declare void @onnxbridge_place(i64, i64, i64)",
            "define internal void @onnxbridge_place(i64 %thread, i64 %size, i64 %mask) {\n ret void\n}",
        )
    if x86:
        return made.replace("@PAUSE", "@llvm.x86.sse2.pause()").replace("CLOCK", "call i64 @llvm.readcyclecounter()")
    made = made.replace("@PAUSE", "@onnxbridge_yield()").replace("declare void @onnxbridge_yield()\n", "", 1)
    return made.replace("CLOCK", "add i64 0, 0")  # nobody is fetched
