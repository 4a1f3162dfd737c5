"""The `pequin` command: one module per subcommand, imported when it is called."""

import importlib
import sys

import click

from pequin.errors import PequinError

COMMANDS = {
    "doctor": "Check the tool chain and say how to mend it.",
    "verilog": "Write a component as Verilog, with a JSON description of its ports.",
    "synth": "Count a component's FPGA cells and, on request, place and route it.",
    "hbm": "Measure the HBM channel, or play a request trace on it.",
    "matmul": "Multiply your own matrices on the simulated MAC array.",
    "asm": "Assemble a program of the tile.",
    "disasm": "Print a program image as source text.",
    "compare": "Run a program on the simulated tile and on the golden machine.",
    "bench": "Measure simulation speed, and how busy a layer keeps HBM.",
}


class LazyGroup(click.Group):
    """A group whose subcommand NAME is `command` in `pequin_sim.cli.NAME`.

    A command's module is imported only when it is used, so that `pequin --help` is quick.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of `COMMANDS`."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one subcommand, or None for an unknown name."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"pequin_sim.cli.{cmd_name.replace('-', '_')}")
        command = module.command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="pequin")
def cli() -> None:
    """Simulate, inspect and synthesize the Pequin compute-slice tile."""


def main() -> None:
    """Run the command line; print a `PequinError` as one line on stderr and exit with 1."""
    try:
        cli.main(prog_name="pequin", standalone_mode=True)
    except PequinError as error:
        click.echo(f"pequin: error: {error}", err=True)
        sys.exit(1)
