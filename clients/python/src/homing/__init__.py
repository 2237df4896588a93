"""Client of the Homing router (docs/python.md)."""

from ._labels import CxlMemoryMetadata, MoeMetadata
from .errors import HomingError
from .generate import GeneratePlace, GenerateStream, GenerateUsage
from .publisher import EngineHash, KvEventPublisher, PublisherStats, ZmqKvEventPublisher
from .router import BestWorker, KvPushRouter, KvRouter, KvRouterConfig
from .worker import Context, RefuseRequest, TokenWorker

__all__ = [
    "BestWorker",
    "Context",
    "CxlMemoryMetadata",
    "EngineHash",
    "GeneratePlace",
    "GenerateStream",
    "GenerateUsage",
    "HomingError",
    "KvEventPublisher",
    "KvPushRouter",
    "KvRouter",
    "KvRouterConfig",
    "MoeMetadata",
    "PublisherStats",
    "RefuseRequest",
    "TokenWorker",
    "ZmqKvEventPublisher",
]
