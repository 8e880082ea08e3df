"""`onnxbridge completion`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from onnxbridge.cli.shared import shell

VARIABLE = "_ONNXBRIDGE_COMPLETE"
HOW = {
    "bash": 'echo \'eval "$(onnxbridge completion bash)"\' >> ~/.bashrc',
    "zsh": 'echo \'eval "$(onnxbridge completion zsh)"\' >> ~/.zshrc',
    "fish": "onnxbridge completion fish > ~/.config/fish/completions/onnxbridge.fish",
}


@click.command("completion", epilog="\b\nTo have it in every shell:\n" + "\n".join(f"  {line}" for line in HOW.values()))
@click.argument("name", metavar="bash|zsh|fish", type=click.Choice(list(HOW)))
def command(name: str) -> None:
    """Print the script that completes commands, options and names in a shell."""
    from onnxbridge.cli import group

    kind = get_completion_class(name)
    assert kind is not None
    made = kind(group, {}, "onnxbridge", VARIABLE)
    shell.say(kind.source_template % made.source_vars())  # `source()` also runs bash to see its version
