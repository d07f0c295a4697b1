"""Drive a Hames server from Python, over its stdin and stdout.

    async with HamesClient.spawn() as client:
        session = await client.create_session("/path/to/project")
        turn = await session.submit("What does this project do?")
        async for event in session.events():
            print(event["seq"], event["type"])

Everything works on asyncio and on trio; `hames_client.sync` has the same without `async`.
"""

from hames_client.client import HamesClient
from hames_client.errors import ConnectionLost, HamesError, LogBroken
from hames_client.events import Events
from hames_client.session import Session

__all__ = ["ConnectionLost", "Events", "HamesClient", "HamesError", "LogBroken", "Session"]
