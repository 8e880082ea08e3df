"""A pytest plugin that reports the kernels that no test has called."""

from __future__ import annotations

from onnxbridge.runtime.executor.kernels.compile import kernel

_called = set()
_interpreted = kernel.Kernel.interpreted


def _record_and_run(self, cells, units):
    function = getattr(self.function, "py_func", self.function)
    _called.add((function.__module__.rpartition(".")[2], function.__name__))
    return _interpreted(self, cells, units)


def pytest_configure(config):
    kernel.Kernel.interpreted = _record_and_run


def pytest_terminal_summary(terminalreporter):
    missing = [".".join(name) for name in kernel.every() if name not in _called]
    terminalreporter.write_line(f"kernels that were not called: {' '.join(missing) or 'none'}")
