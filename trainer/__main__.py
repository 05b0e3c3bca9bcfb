"""`python -m trainer run --config trainer.toml`."""

from trainer.commands import app

if __name__ == "__main__":
    app()
