"""A plugin of pytest that tells which kernels no test has called."""

from __future__ import annotations

from onnxbridge.runtime.executor.kernels.compile import kernel

_called = set()
_run = kernel.Loop._run


def _noted(self, values, units):
    function = getattr(self.function, "py_func", self.function)
    _called.add((function.__module__.rpartition(".")[2], function.__name__))
    return _run(self, values, units)


def pytest_configure(config):
    kernel.Loop._run = _noted


def pytest_terminal_summary(terminalreporter):
    missing = [".".join(name) for name in kernel.every() if name not in _called]
    terminalreporter.write_line(f"kernels that were not called: {' '.join(missing) or 'none'}")
