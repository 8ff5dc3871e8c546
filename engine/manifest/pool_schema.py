"""The part of a manifest that is about workers: the slots of a round and what fills them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from engine.coding_agents import provider_address
from engine.coding_agents.agent_templates import AgentTemplate, templates
from engine.coding_agents.provider_address import ProviderAddress

Text = Annotated[str, Meta(min_length=1, max_length=4000)]
Count = Annotated[int, Meta(ge=1, le=10_000)]
Seconds = Annotated[float, Meta(gt=0, le=604_800)]
SCRIPTED = "scripted/"
"""The start of a model's name if a script of the project answers instead of a model."""
NETWORK_FIX = "name its provider's key in `env`, or write `network: [HOST]` or `network: true`"
"""How a custom command gets a network."""


class ManifestPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all parts of a manifest: frozen, by keyword, without unknown keys."""


class CliSpec(ManifestPart, frozen=True, kw_only=True):
    """A command as a worker; {prompt}, {worktree} and {python} in it are replaced."""

    name: Text
    template: str = ""
    """A coding agent that kopt knows (`kopt doctor` lists them): its command and how its output is
    read. `command`, if given, replaces that command; `generic` has none."""
    command: str = ""
    args: str = ""
    """Further arguments for a template's command, such as the model's name."""
    env: tuple[Text, ...] = ()
    """Names of environment variables it may see, beyond the few that every worker gets."""
    network: bool | tuple[Text, ...] | None = None
    """True: the whole network; false: none; or the only HOSTs or HOST:PORTs (default 443) that it
    reaches. By default those of the keys and URLs in its variables; if these contain none of its
    template's keys, also those of all these keys."""
    gpu: bool = False
    """Whether it may use one of the campaign's cards. It is stopped while that card measures."""
    timeout_s: Seconds = 1800.0
    cost: Annotated[float, Meta(ge=0)] = 0.0
    """Cost of one attempt in the unit of `budget.cost`; declared, as workers are not trusted."""

    @property
    def agent(self) -> AgentTemplate | None:
        """The template, None without one."""
        return templates().get(self.template)

    @property
    def command_line(self) -> str:
        """The command that runs, with its placeholders."""
        known = "" if self.agent is None else self.agent.command
        return self.command or known.replace("{args}", self.args)

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables it may see: `env`, and all keys of a template unless `env` names some."""
        agent = self.agent
        if agent is None:
            return self.env
        keys = () if set(agent.keys) & set(self.env) else agent.keys
        return (*self.env, *keys, *agent.env)

    def providers(self, passed: Mapping[str, str]) -> tuple[ProviderAddress, ...] | None:
        """Return the addresses that it reaches if the variables `passed` are set: () for no
        network, None for the whole network.
        """
        if self.network is True:
            return None
        if self.network is not None:
            return tuple(filter(None, map(provider_address.parse, self.network or ())))
        variables = {name: passed[name] for name in self.variables if name in passed}
        agent_keys = () if self.agent is None else self.agent.keys
        keys = () if variables.keys() & set(agent_keys) else agent_keys
        return tuple(dict.fromkeys(
            address for name in (*keys, *variables)
            for address in provider_address.addresses_of_variable(name, variables.get(name, ""))))


class ModelSpec(ManifestPart, frozen=True, kw_only=True):
    """A language model; needs `kopt[agent]`."""

    model: Text
    """As LiteLLM names it, such as openai/gpt-5 or anthropic/claude-sonnet-4-5. With scripted/FILE
    no model answers: the function `answer` of that Python file of the project does."""
    api_base: str = ""
    """The provider's address, if it is not the usual one."""
    key_env: str = ""
    """The variable of kopt's environment that holds the provider's key; never the key itself."""

    @property
    def script(self) -> str:
        """The file of the project that answers in place of a model, "" if a model answers."""
        return self.model.removeprefix(SCRIPTED) if self.model.startswith(SCRIPTED) else ""

    @property
    def missing_key(self) -> str:
        """Which variable should hold the provider's key here and does not, "" for none."""
        return f"the variable {self.key_env} is empty or not set" \
            if self.key_env and not os.environ.get(self.key_env) else ""


class RequestSpec(ModelSpec, frozen=True, kw_only=True):
    """A language model that is asked for advice between rounds, without tools."""

    timeout_s: Seconds = 180.0
    """How long a campaign waits for an answer."""


class AgentSpec(ModelSpec, frozen=True, kw_only=True):
    """A language model that works with a shell (mini-swe-agent, LiteLLM)."""

    env: tuple[Text, ...] = ()
    """Names of further variables that the model's commands may see."""
    step_limit: Count = 60
    cost_limit_usd: Annotated[float, Meta(gt=0, le=1e6)] | None = 3.0
    """Limit of one attempt. It cannot be enforced for a model whose price LiteLLM does not
    know."""
    timeout_s: Seconds = 1800.0
    command_s: Seconds = 300.0
    """Time limit of one of its shell commands."""
    answer_s: Seconds = 300.0
    """The longest silence of the provider within an answer."""


class PoolSpec(ManifestPart, frozen=True, kw_only=True):
    """The slots of a round and the workers that fill them; None lets kopt choose the number."""

    mode: Literal["mixed", "fixed", "planned"] = "mixed"
    slots: Annotated[int, Meta(ge=1, le=64)] | None = None
    workers: Annotated[int, Meta(ge=1, le=256)] | None = None
    min_workers: Annotated[int, Meta(ge=1, le=256)] = 8
    workers_per_gpu: Annotated[int, Meta(ge=1, le=64)] = 4
    backends: tuple[str, ...] = ("search", "split", "transform", "rewrite-template", "inbox")
    """What fills slots. Patches that a person submits are always judged; with `inbox` alone, only
    these are."""
    rewrites: tuple[str, ...] | None = None
    """Languages that coding agents rewrite the kernel into, such as tilelang; by default those that
    its op suggests, [] for none."""
    replay: str = ""
    """The earlier changes that the backend `replay` judges anew: a campaign, a candidate, a folder
    of patches, a commit or branch of the project, or corpus."""
    trials: Count = 24
    """Trials of one search slot."""
    screenings: Annotated[int, Meta(ge=0, le=1000)] = 6
    """How many quick verdicts a coding agent may ask for in one attempt, by `kopt evaluate`. They
    decide nothing and count as trials."""
    screening_spacing_s: Annotated[float, Meta(ge=0, le=86_400)] = 10.0
    """The least time between two of these verdicts in one slot."""
    cli: tuple[CliSpec, ...] = ()
    agent: AgentSpec | None = None
    planner: RequestSpec | Literal["agent", "none"] = "agent"
    """The model that proposes hypotheses for coding agents: by default that of `agent`."""
    analyst: RequestSpec | Literal["planner", "none"] = "planner"
    """The model that reads each new best's measurements for coding agents."""
    reviewer: RequestSpec | Literal["planner", "none"] = "planner"
    """The model that comments on candidates that wait for a person."""
    worker_timeout_s: Seconds = 1800.0
    outage_s: Seconds = 28_800.0
    """How long a campaign with nothing else to try waits for models' providers that do not
    answer."""
    outage_pause_s: Seconds = 30.0
    """The pause before agents ask such a provider again; it doubles each time, up to 15 minutes."""
    skip_profile: bool = False
    """Plan from measurements only, without compiler remarks and the machine's limits."""
    selftest_iterations: Count | None = None
    """How often workers should repeat their own tests, passed to them as KOPT_SELFTEST_ITERATIONS;
    verdicts do not use it."""
