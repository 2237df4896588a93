"""Client of the Homing router (docs/python.md)."""

from .errors import HomingError
from .generate import GeneratePlace, GenerateStream, GenerateUsage
from .router import BestWorker, KvRouter, KvRouterConfig

__all__ = [
    "BestWorker",
    "GeneratePlace",
    "GenerateStream",
    "GenerateUsage",
    "HomingError",
    "KvRouter",
    "KvRouterConfig",
]
