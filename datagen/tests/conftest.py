"""What the tests of the makers of rows share with the tool's."""

from tests.conftest import fetching, typescript_package

__all__ = ["fetching", "typescript_package"]
