"""`python -m expert_cli`, the form that torchrun and machines without the script on their PATH use."""

from expert_cli.cli import main

main()
