"""The command `tfps`; its subcommands are imported when they are used."""

from __future__ import annotations

import importlib
import importlib.util

import click

from tfps import __version__

# Name to (module, attribute, one line for the list of commands, hidden). Importing a command to
# list it would cost seconds: most of them need TensorFlow's surroundings.
COMMANDS = {
    "run": ("tfps.cli.run", "run", "Run a training script on a parameter-server cluster.", False),
    "train": (
        "tfps.cli.train",
        "train",
        "Train the job that a configuration file describes.",
        False,
    ),
    "check": (
        "tfps.cli.check",
        "check",
        "Check a configuration file without starting anything.",
        False,
    ),
    "plan": ("tfps.cli.plan", "plan", "Show which parameter goes to which server.", False),
    "bench": (
        "tfps.cli.bench",
        "bench",
        "Measure, and compare with TensorFlow's own strategy.",
        False,
    ),
    "serve": ("tfps.cli.serve", "serve", "Serve as the worker or ps that TF_CONFIG names.", True),
}


class LazyGroup(click.Group):
    """A group that knows its commands by name and imports one when it is called."""

    def list_commands(self, context: click.Context) -> list[str]:
        """Return the names that `--help` lists."""
        return [
            name
            for name, (module, _, _, hidden) in COMMANDS.items()
            if _exists(module) and not hidden
        ]

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """Import a command."""
        if name not in COMMANDS or not _exists(COMMANDS[name][0]):
            return None
        module, attribute, _, _ = COMMANDS[name]
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        rows = [(name, COMMANDS[name][2]) for name in self.list_commands(context)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _exists(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tfps")
def main() -> None:
    """Train TensorFlow 2 and Keras 3 models with parameter servers.

    TF_CONFIG decides which task of a cluster a command is; without it, commands start a cluster of
    processes on this machine.
    """
