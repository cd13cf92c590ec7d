"""The command line: all commands, and how errors are reported."""

from __future__ import annotations

import gc
import os
import sys
from importlib import import_module
from typing import Annotated, Any, Final

import click
import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperGroup
from typer.main import get_command

# Small matrices: a second BLAS thread mostly waits for the first, and torch has its own.
# Set before NumPy is loaded, which no import of this module does.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from cslr import __version__
from cslr.errors import CslrError

__all__ = ["app", "main"]

_COMMANDS: Final = {
    "run": "run:run_command",
    "upgrade": "run:upgrade_command",
    "predict": "predict:predict_command",
    "report": "report:report_command",
    "plan": "privacy:plan_command",
    "audit": "audit:audit_command",
    "anchors": "theory:anchors_command",
    "quality": "theory:quality_command",
    "doctor": "doctor:doctor_command",
    "data": "data:data_app",
    "ledger": "privacy:ledger_app",
    "runs": "finished_runs:runs_app",
    "federation": "federation:federation_app",
    "reproduce": "experiments:reproduce_command",
    "tables": "experiments:tables_command",
}
"""Where each command is, in ``cslr.cli``: a function, or an app with commands of its own."""

_OBJECTS: Final = 100_000
"""New objects between two garbage collections. Imports make many objects, and all are kept."""


class _Commands(dict[str, click.Command]):
    """Commands by name; a module is imported when one of its commands is looked up."""

    def __init__(self) -> None:
        super().__init__(dict.fromkeys(_COMMANDS))  # type: ignore[arg-type]

    def __getitem__(self, name: str) -> click.Command:
        if super().__getitem__(name) is None:
            self[name] = _imported(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        try:
            return self[name]
        except KeyError:
            return default

    def values(self) -> Any:
        return [self[name] for name in self]

    def items(self) -> Any:
        return [(name, self[name]) for name in self]


def _imported(name: str) -> click.Command:
    module, attribute = _COMMANDS[name].split(":")
    target = getattr(import_module(f"cslr.cli.{module}"), attribute)
    alone = typer.Typer(rich_markup_mode="markdown", callback=lambda: None)
    if isinstance(target, typer.Typer):
        alone.add_typer(target, name=name)
    else:
        alone.command(name)(target)
    group = get_command(alone)
    assert isinstance(group, click.Group)  # because it has a callback
    return group.commands[name]


class _Program(TyperGroup):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = _Commands()


app = typer.Typer(
    name="cslr",
    cls=_Program,
    help="Private federated continual learning over text.",
    no_args_is_help=True,
    add_completion=True,
    epilog="Exit codes: 0 done; 1 output closed or doctor found a fault; 2 something to correct; "
    "3 verification or audit failed; 130 interrupted.",
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


def _version(show: bool) -> None:
    if show:
        typer.echo(f"cslr {__version__}")
        raise typer.Exit


@app.callback()
def _top(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """The entry point: a user error is a message and exit code 2, without a traceback."""
    gc.set_threshold(_OBJECTS)
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
