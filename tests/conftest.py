"""What every test session needs before the training libraries are imported."""

from expert_cli._compat import quiet_imports

quiet_imports()
