"""The entry point of `python -m expert_cli`, for torchrun and for machines without the script on their PATH."""

from expert_cli.cli import main

main()
