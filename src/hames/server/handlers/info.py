"""The handshake, what this build is and can do, health, shutdown. Light: `initialize` waits for these imports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio

from hames.protocol.errors import KINDS, HamesError
from hames.protocol.methods import METHODS, NOTIFICATIONS, SCHEMA_VERSION
from hames.server.greeting import SERVER_INFO, agree, limits_view

if TYPE_CHECKING:
    from hames.server.connection import Call


async def initialize(call: Call) -> dict[str, Any]:
    """Agree on a version; see `server.greeting`, which often answers before this is loaded."""
    host = call.host
    result, client = agree(call.params, limits=host.limits, store=host.about_store(), transport=host.transport)
    call.connection.greet(client)
    call.after.append(host.warm_up)
    return result


async def capabilities_describe(call: Call) -> dict[str, Any]:
    """From the live tables; a test holds it against them."""
    from hames.core.attribution import published
    from hames.protocol.events import EVENTS

    return {
        "schemaVersion": SCHEMA_VERSION,
        "serverInfo": SERVER_INFO,
        "methods": [
            {"name": m.name, "summary": m.summary, "ordered": m.ordered, "waits": m.waits, "early": m.early}
            for m in METHODS.values()
        ],
        "notifications": list(NOTIFICATIONS),
        "events": [
            {"type": name, "stability": info.stability, "lifecycle": info.lifecycle} for name, info in EVENTS.items()
        ],
        "errors": [
            {"kind": kind, "meaning": info.meaning, "advice": info.advice, "retryable": info.retryable}
            for kind, info in KINDS.items()
        ],
        "hostTools": [],
        "childProfiles": [],
        "nativeModelTools": [],
        "limits": limits_view(call.host.limits),
        "contextPolicy": {
            "compaction": "near the end of the model's window, and when `session/compact` asks",
            "overflow": "the context is made shorter and the request sent once more; then the turn fails",
        },
        "repeatableFields": ["input"],
        "attribution": published("{name}/{version}".format_map(SERVER_INFO)),
        "optional": {
            "approvals": False,
            "children": False,
            "compaction": True,
            "artifacts": True,
            "images": True,
            "processes": True,
            "mcp": False,
        },
        **call.host.about_parts(),
    }


async def ping(call: Call) -> dict[str, Any]:
    """Answers whatever else runs."""
    return {}


async def rpc_discover(call: Call) -> dict[str, Any]:
    """The OpenRPC document, built in a thread: it takes a second the first time."""
    from hames.protocol.schema import openrpc_document

    return await anyio.to_thread.run_sync(openrpc_document)


async def tools_list(call: Call) -> dict[str, Any]:
    """The tools that a session can have."""
    return {"tools": call.host.about_parts()["parentTools"]}


async def models_list(call: Call) -> dict[str, Any]:
    """Models of a provider, asked of it now, with what is known of each."""
    service = await call.service()
    await service.opened()
    await service.unlock(call.params.get("provider"))
    provider = service.world.provider(call.params.get("provider"))
    models: list[dict[str, Any]] = []
    for name in await provider.models():
        known = service.world.facts(provider.name, name)
        models.append({"name": name, "source": "provider"} if known is None else {"name": name, **known.published()})
    return {"provider": provider.name, "models": models}


async def health_check(call: Call) -> dict[str, Any]:
    """Whether what a session needs works now. A failing dependency is an answer, not an error."""
    service = await call.service()
    wanted = call.params.get("dependencies", ["store", "sandbox", "provider", "workspace"])
    snapshot = None
    if "sessionId" in call.params:
        snapshot = (await service.load(call.params["sessionId"])).snapshot
    found: dict[str, Any] = {}
    for dependency in wanted:
        try:
            if dependency == "store":
                await service.opened()
                found[dependency] = dict(await service.store.check())
            elif dependency != "workspace" or snapshot is not None:
                await service.opened()
                async with service.preparing.wait():
                    found[dependency] = dict(await service.world.check(dependency, snapshot))
        except HamesError as failure:
            found[dependency] = {"status": "unavailable", "why": failure.message, "details": failure.data()}
    return {"dependencies": found}


async def shutdown(call: Call) -> dict[str, Any]:
    """Stop; answered once nothing of ours runs, and then the process ends."""
    mode = call.params.get("mode", "cancel")
    timeout_ms = call.params.get("timeoutMs")
    with anyio.move_on_after(None if timeout_ms is None else timeout_ms / 1000) as bound:
        await call.host.shut_down(mode, cause="shutdown")
    if bound.cancelled_caught:
        await call.host.shut_down("cancel", cause="shutdown")
    call.after.append(call.host.leaving.set)
    return {}
