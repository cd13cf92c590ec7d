"""The command line: all commands, and how errors are reported."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import click
import typer
from rich.console import Console
from rich.text import Text

# Small matrices: a second BLAS thread mostly waits for the first, and torch has its own.
# Set before NumPy is loaded, which no import of this module does.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from cslr import __version__
from cslr.cli.audit import audit_command
from cslr.cli.data import data_app
from cslr.cli.doctor import doctor_command
from cslr.cli.experiments import experiments_app
from cslr.cli.federation import federation_app
from cslr.cli.finished_runs import runs_app
from cslr.cli.predict import predict_command
from cslr.cli.privacy import ledger_app, plan_command
from cslr.cli.report import report_command
from cslr.cli.run import run_command, upgrade_command
from cslr.cli.theory import anchors_command, quality_command
from cslr.errors import CslrError

__all__ = ["app", "main"]

app = typer.Typer(
    name="cslr",
    help="Private federated continual learning over text.",
    no_args_is_help=True,
    add_completion=True,
    epilog="Exit codes: 0 done; 1 output closed or doctor found a fault; 2 something to correct; "
    "3 verification or audit failed; 130 interrupted.",
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
app.add_typer(data_app, name="data")
app.add_typer(ledger_app, name="ledger")
app.add_typer(runs_app, name="runs")
app.add_typer(federation_app, name="federation")
app.add_typer(experiments_app)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"cslr {__version__}")
        raise typer.Exit


@app.callback()
def _top(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


app.command("run")(run_command)
app.command("upgrade")(upgrade_command)
app.command("predict")(predict_command)
app.command("report")(report_command)
app.command("plan")(plan_command)
app.command("audit")(audit_command)
app.command("anchors")(anchors_command)
app.command("quality")(quality_command)
app.command("doctor")(doctor_command)


def main() -> None:
    """The entry point: a user error is a message and exit code 2, without a traceback."""
    try:
        code = app(standalone_mode=False)
    except CslrError as error:
        _tell(str(error))
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        print("Interrupted.", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:  # the reader closed the pipe: `cslr predict ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        if error.filename is None:
            raise
        _tell(f"{error.filename}: {error.strerror}")
        sys.exit(2)
    sys.exit(code or 0)


def _tell(message: str) -> None:
    """Print an error without markup and without breaking paths over lines."""
    text = Text.assemble(("error:", "bold red"), " ", message)
    Console(stderr=True).print(text, soft_wrap=True)


if __name__ == "__main__":
    main()
