"""Packages that parts of this one need, which are imported when they are."""

from __future__ import annotations

import importlib
from typing import Any

from .errors import refused


def needed(module: str, package: str, act: str, extra: str, packages: str) -> Any:
    """`extra`: of this package; `packages`: all that it brings. Raises HomingError `packages_missing`."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise refused(
            "packages_missing",
            f"cannot {act}: the package {package} is missing; "
            f'type: pip install "homing[{extra}]", or pip install {packages}',
        ) from error
