"""`pequin doctor`: check that everything is there and works."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

import click
from rich.console import Console
from rich.table import Table

from pequin_sim import doctor


@click.command("doctor", context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout and nothing else.")
def command(as_json: bool) -> None:
    """Check the tool chain and say how to mend it.

    Compiles and simulates a tiny design. Exits with 1 when something that is needed is missing;
    Icarus Verilog and FST waveforms are optional.
    """
    console = Console(stderr=True)
    checks: list[doctor.Check] = []
    for check in doctor.run_checks():
        checks.append(check)
        if not as_json:
            mark = "ok" if check.ok else "MISSING" if check.needed else "not there"
            console.print(f"{check.name}: {mark}", highlight=False, soft_wrap=True)
    ok = doctor.healthy(checks)
    if as_json:
        document = {"ok": ok, "checks": [asdict(check) for check in checks]}
        click.echo(json.dumps(document, indent=2))
    else:
        _print(checks, ok)
    if not ok:
        sys.exit(1)


def _print(checks: list[doctor.Check], ok: bool) -> None:
    table = Table(box=None, pad_edge=False)
    for heading in ("check", "", "version", "where"):
        table.add_column(heading, overflow="fold")
    for check in checks:
        mark = "[green]ok[/]" if check.ok else "[red]no[/]" if check.needed else "[yellow]no[/]"
        table.add_row(check.name, mark, check.version, doctor.relative(check.path))
    console = Console(soft_wrap=not sys.stdout.isatty())
    console.print(table)
    for check in checks:
        if check.note and (not check.ok or check.name in ("verilator", "compile and simulate")):
            console.print(f"{check.name}: {check.note}", highlight=False, soft_wrap=True)
    console.print("everything needed works" if ok else "something needed is missing")
