"""Does a subscription name a topic?"""

import re
from functools import lru_cache

from discovery.core.model import TopicName
from discovery.feed.base import Interest


def follows(interest: Interest, topic: TopicName) -> bool:
    """Tell whether the interest names this topic, existing or not.

    Runs: anywhere (pure).
    """
    if interest.pattern is not None:
        return _compiled(interest.pattern).search(topic) is not None
    return topic in interest.topics or any(tp.topic == topic for tp in interest.assigned)


@lru_cache(maxsize=16)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)
