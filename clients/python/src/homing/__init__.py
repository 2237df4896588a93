"""Client of the Homing router (docs/python.md)."""

from .errors import HomingError
from .generate import GeneratePlace, GenerateStream, GenerateUsage
from .publisher import EngineHash, KvEventPublisher, PublisherStats, ZmqKvEventPublisher
from .router import BestWorker, KvPushRouter, KvRouter, KvRouterConfig

__all__ = [
    "BestWorker",
    "EngineHash",
    "GeneratePlace",
    "GenerateStream",
    "GenerateUsage",
    "HomingError",
    "KvEventPublisher",
    "KvPushRouter",
    "KvRouter",
    "KvRouterConfig",
    "PublisherStats",
    "ZmqKvEventPublisher",
]
