"""`filtercov train` as a script that torchrun can start."""

import typer

from filtercov.cli.train import train

if __name__ == "__main__":
    typer.run(train)
