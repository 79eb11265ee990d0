"""A harness for `verifiers`: a plain chat, one model call a turn, no tools, no process of its own."""

from __future__ import annotations

from typing import Any

import aiohttp
import verifiers.v1 as vf

__all__ = ["ChatHarness"]

_NO_LIMIT = aiohttp.ClientTimeout(total=None, connect=30.0)


class ChatHarness(vf.Harness[vf.HarnessConfig]):  # type: ignore[misc]
    """Asks the model once with the conversation so far; a role with further turns is resumed with them."""

    APPENDS_SYSTEM_PROMPT = True
    SUPPORTS_RESUME = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self,
        ctx: vf.ModelContext,
        trace: vf.Trace,
        runtime: vf.Runtime,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: vf.TaskData,
    ) -> vf.ProgramResult:
        """One turn, through the package's own interception of model calls."""
        system, prompt = self.resolve_prompt(data)
        messages: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
        if isinstance(prompt, str):
            messages.append({"role": "user", "content": prompt})
        else:
            messages += [message.model_dump(mode="json", exclude_none=True) for message in prompt or []]
        body = {"model": ctx.model, "messages": messages}
        headers = {"Authorization": f"Bearer {secret}"}
        async with (
            aiohttp.ClientSession(timeout=_NO_LIMIT) as session,
            session.post(f"{endpoint}/chat/completions", json=body, headers=headers) as answer,
        ):
            text = await answer.text()
        if answer.status != 200:
            return vf.ProgramResult(exit_code=1, stdout="", stderr=f"{answer.status}: {text}")
        return vf.ProgramResult(exit_code=0, stdout=text, stderr="")
