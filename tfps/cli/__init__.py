"""The command `tfps`; its subcommands are imported when they are used."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
from typing import Any

import click

from tfps import __version__
from tfps.errors import BackendError, ClusterError, ConfigError
from tfps.keras_backend import check_backend
from tfps.package_versions import package_version
from tfps.tested_versions import format_known_range

# Each is a function of its name in a module of its name. Importing one to list it would cost
# seconds: most of them need TensorFlow's surroundings.
COMMANDS = {
    "run": "Run a training script on a parameter-server cluster.",
    "train": "Train the job that a configuration file describes.",
    "check": "Check a configuration file without starting anything.",
    "plan": "Show which parameter goes to which server.",
    "top": "Show the tasks of a job while it runs, and what slows it down.",
    "supervise": "Run one task of a cluster, and start it again when it crashes.",
    "scheduler": "Tell the tasks of one job, which know one address, where the others are.",
    "serve": "Serve as the worker or ps that TF_CONFIG or a scheduler names.",
}


class LazyGroup(click.Group):
    """Lists commands by name, and imports a command when it is called."""

    def invoke(self, context: click.Context) -> Any:
        """Call a command; print errors that a user can fix in one line, without a traceback."""
        try:
            return super().invoke(context)
        except (ClusterError, ConfigError) as error:
            raise click.ClickException(str(error)) from error

    def list_commands(self, context: click.Context) -> list[str]:
        """Return the names that `--help` lists."""
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """Import a command."""
        if name not in COMMANDS:
            return None
        try:
            check_backend()
        except BackendError as error:
            raise click.ClickException(str(error)) from error
        command = getattr(importlib.import_module(f"tfps.cli.{name}"), name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is called; the error for an unknown name suggests a similar one."""
        name = args[0]
        close = difflib.get_close_matches(name, self.list_commands(context), n=1)
        if close and close[0] != name:
            context.fail(f"No such command {name!r}. Did you mean {close[0]!r}?")
        return super().resolve_command(context, args)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _print_version(context: click.Context, _option: click.Parameter, is_requested: bool) -> None:
    if is_requested and not context.resilient_parsing:
        # From what was installed: importing TensorFlow would take seconds.
        tensorflow, keras = (
            package_version(package) or "not installed" for package in ("tensorflow", "keras")
        )
        click.echo(
            f"tfps {__version__} (TensorFlow {tensorflow}, Keras {keras}; tested with TensorFlow "
            f"{format_known_range('tensorflow')} and Keras {format_known_range('keras')})"
        )
        context.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the versions of tfps, TensorFlow and Keras, and exit.",
)
def main() -> None:
    """Train TensorFlow 2 and Keras 3 models with parameter servers.

    TF_CONFIG, or a scheduler, decides which task of a cluster a command is; without both, commands
    start a cluster of processes on this machine.
    """
