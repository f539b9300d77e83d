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

# Name to (module, attribute, one line for the list of commands). Importing a command to list it
# would cost seconds: most of them need TensorFlow's surroundings.
COMMANDS = {
    "run": ("tfps.cli.run", "run", "Run a training script on a parameter-server cluster."),
    "train": (
        "tfps.cli.train",
        "train",
        "Train the job that a configuration file describes.",
    ),
    "check": (
        "tfps.cli.check",
        "check",
        "Check a configuration file without starting anything.",
    ),
    "plan": ("tfps.cli.plan", "plan", "Show which parameter goes to which server."),
    "supervise": (
        "tfps.cli.supervise",
        "supervise",
        "Run one task of a cluster, and start it again when it crashes.",
    ),
    "serve": ("tfps.cli.serve", "serve", "Serve as the worker or ps that TF_CONFIG names."),
}


class LazyGroup(click.Group):
    """A group that knows its commands by name and imports one when it is called."""

    def invoke(self, context: click.Context) -> Any:
        """Call a command; what its user can mend is an error in a line, without a traceback."""
        try:
            return super().invoke(context)
        except (ClusterError, ConfigError) as error:
            raise click.ClickException(str(error)) from error

    def list_commands(self, context: click.Context) -> list[str]:
        """Return the names that `--help` lists."""
        return [name for name, (module, _, _) in COMMANDS.items() if _exists(module)]

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """Import a command."""
        if name not in COMMANDS or not _exists(COMMANDS[name][0]):
            return None
        try:
            check_backend()
        except BackendError as error:
            raise click.ClickException(str(error)) from error
        module, attribute, _ = COMMANDS[name]
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is called; a name that is close to one is answered with it."""
        name = args[0]
        close = difflib.get_close_matches(name, self.list_commands(context), n=1)
        if close and close[0] != name:
            context.fail(f"No such command {name!r}. Did you mean {close[0]!r}?")
        return super().resolve_command(context, args)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        rows = [(name, COMMANDS[name][2]) for name in self.list_commands(context)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _exists(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _print_version(context: click.Context, _option: click.Parameter, asked: bool) -> None:
    if asked and not context.resilient_parsing:
        # From what was installed: importing TensorFlow would take seconds.
        tensorflow, keras = (
            package_version(package) or "not installed" for package in ("tensorflow", "keras")
        )
        click.echo(f"tfps {__version__} (TensorFlow {tensorflow}, Keras {keras})")
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

    TF_CONFIG decides which task of a cluster a command is; without it, commands start a cluster of
    processes on this machine.
    """
