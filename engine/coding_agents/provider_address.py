"""Addresses at which providers of language models listen."""

from __future__ import annotations

import re
from typing import Annotated
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

HTTPS = 443
_PORTS = {"http": 80, "https": HTTPS}
_GOOGLE = "generativelanguage.googleapis.com"
_OF_KEYS = {
    "ANTHROPIC_API_KEY": ("api.anthropic.com",), "ANTHROPIC_AUTH_TOKEN": ("api.anthropic.com",),
    "CLAUDE_CODE_OAUTH_TOKEN": ("api.anthropic.com",), "CODEX_API_KEY": ("api.openai.com",),
    "OPENAI_API_KEY": ("api.openai.com",), "GEMINI_API_KEY": (_GOOGLE,),
    "GOOGLE_API_KEY": (_GOOGLE, "aiplatform.googleapis.com"), "OPENCODE_API_KEY": ("opencode.ai",),
    "OPENROUTER_API_KEY": ("openrouter.ai",), "DEEPSEEK_API_KEY": ("api.deepseek.com",)}
"""The hosts that each variable's key is for."""
_HOST = re.compile(r"[a-z0-9_.:-]{1,253}")
_URL = re.compile(r"https?://[^\s\"'<>\\,]+")


class ProviderAddress(msgspec.Struct, frozen=True):
    """Where a provider listens."""

    host: Annotated[str, Meta(min_length=1, max_length=253)]
    port: Annotated[int, Meta(ge=1, le=65535)]

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse(text: str) -> ProviderAddress | None:
    """Return the address in HOST, HOST:PORT, http:// or https://HOST[:PORT]; None for others."""
    try:
        parts = urlsplit(text if "://" in text else f"https://{text}")
        port = parts.port or _PORTS[parts.scheme]
    except (ValueError, KeyError):
        return None
    host = parts.hostname or ""
    return ProviderAddress(host, port) if _HOST.fullmatch(host) and text.isprintable() else None


def addresses_of_variable(name: str, value: str) -> list[ProviderAddress]:
    """Return the providers to which a variable gives access.

    Known keys are recognised by their names, other variables by URLs in their values. A proxy is no
    provider: the engine itself connects to it.
    """
    urls = [] if name.lower().endswith("_proxy") else _URL.findall(value)
    return [*(ProviderAddress(host, HTTPS) for host in _OF_KEYS.get(name, ())),
            *(address for url in urls if (address := parse(url)) is not None)]
