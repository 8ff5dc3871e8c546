"""The parameters of a new manifest as a person sees them: names, values and their origins."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.coding_agents import agent_templates
from engine.manifest.load import parse
from engine.manifest.pool_schema import PoolSpec
from engine.manifest.schema import Manifest
from harness.errors import InputError
from harness.formats import yaml_document, yaml_values
from harness.formats.text import suggest

LISTS = ("edit", "frozen", "metrics", "configs", "ignore")
SCALARS = ("git_commit", "max_iterations")
TARGET = ("csv", "check", "metrics", "configs", "ignore")
ROUNDS = 10
OF_CAMPAIGN = (
    ("performance_target", "", ""), ("execution_mode", "repo", "default"),
    ("git_commit", "true", "default"), ("git_branch", "auto", "default"),
    ("max_iterations", str(ROUNDS), "default"), ("approval", "flagged", "default"))
"""The parameters of every campaign: names, values and origins."""


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One parameter: its value as text, and the origin of that value."""

    name: str
    value: str
    origin: str = ""


Parameters = Mapping[str, Parameter]


def make_parameters(rows: Iterable[tuple[str, str, str]]) -> Parameters:
    """Return parameters from names, values and origins; an empty value has no origin."""
    return {name: Parameter(name=name, value=value, origin=origin if value else "")
            for name, value, origin in rows}


def with_given(known: Parameters, overrides: Mapping[str, str]) -> Parameters:
    """Return the parameters with values that a person gave. Raises InputError for unknown names."""
    for name in overrides:
        if name not in known:
            raise InputError(f"there is no parameter {name!r}",
                             fix=suggest(name, known) or "kopt new lists the parameters")
    return {name: Parameter(name=name, value=overrides[name].strip(), origin="given")
            if name in overrides else parameter for name, parameter in known.items()}


def pool_of(backends: str = "", agent: str = "", agent_env: str = "",
            agent_network: str = "") -> dict[str, Any]:
    """Return the manifest's `pool`.

    `agent` is the name of a known coding agent or the command of another one; it sees the variables
    `agent_env` and may connect to `agent_network`. Raises InputError if `agent` is neither.
    """
    if not agent:
        return {"backends": split_list(backends)} if backends else {}
    if len(agent.split()) == 1 and agent not in agent_templates.names():
        raise InputError(f"--agent: {agent!r} is neither a known coding agent nor a command "
                         "with {prompt}", fix=suggest(agent, agent_templates.names()))
    names = split_list(backends) or PoolSpec().backends
    env: dict[str, Any] = {"env": split_list(agent_env)} if agent_env else {}
    if agent_network:
        env["network"] = True if agent_network == "all" else split_list(agent_network)
    return {"backends": list(dict.fromkeys((*names, "cli"))),
            "cli": [{"name": agent, "template": agent, **env} if agent in agent_templates.names()
                    else {"name": "agent", "command": agent, **env}]}


def make_manifest(known: Parameters, pool: Mapping[str, Any], **value: Any) -> Manifest:
    """Return the manifest with the parameters' values. Raises InputError for a wrong one."""
    if pool:
        value["pool"] = pool
    value["created"] = time.strftime("%Y-%m-%d %H:%M")
    for name, parameter in known.items():
        if not parameter.value:
            continue
        if name in TARGET:
            value["target"][name] = typed_value(parameter)
        elif name == "device":
            value["gpu"] = {"device": parameter.value}
        else:
            value[name] = typed_value(parameter)
    return parse(yaml_document.dump(value), "the manifest")


def typed_value(parameter: Parameter) -> object:
    """Return a parameter's value with the type that the manifest needs."""
    if parameter.name in LISTS:
        return split_list(parameter.value)
    return yaml_values.scalar(parameter.value) if parameter.name in SCALARS else parameter.value


def split_list(value: str) -> Sequence[str]:
    """Return the parts of a comma-separated list."""
    return [part.strip() for part in value.split(",") if part.strip()]
