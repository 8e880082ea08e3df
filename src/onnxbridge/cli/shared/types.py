"""Types of arguments and options, which tell a shell what completes them."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem


class _Location(click.types.StringParamType):
    """A file or folder, or something else that stands for a model: a URL, a prefix, MODULE:FACTORY."""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(incomplete, type="file")]


class _PluginName(click.types.StringParamType):
    """The name of an installed frontend or backend."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from onnxbridge import plugins

        return [CompletionItem(name) for name in plugins.installed(self.kind) if name.startswith(incomplete)]


LOCATION = _Location()
FRONTEND, BACKEND = _PluginName("frontend"), _PluginName("backend")
