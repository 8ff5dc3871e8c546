"""The files that call a module and its reference, written into the project by `kopt new`."""

from __future__ import annotations

import os
from pathlib import PurePosixPath

from engine.discovery.module.problem_facts import ModuleFacts

FUNCTION = "call"
REFERENCE = "reference"

SHARED = '''
def as_bool(flags):
    return flags.view(torch.bool) if flags.dtype == torch.uint8 else flags.bool()


def tensors(value):
    """Return the tensors of a returned value, a dict's by its keys; numbers become tensors."""
    if isinstance(value, torch.Tensor):
        return [value.view(torch.uint8) if value.dtype == torch.bool else value]
    if isinstance(value, dict):
        value = [value[key] for key in sorted(value, key=str)]
    if isinstance(value, (list, tuple)):
        return [leaf for part in value for leaf in tensors(part)]
    return [] if value is None else [torch.tensor(value)]
'''
OBJECTS = '''
objects = {}


def object_of(kind, init, named, training, weights, device):
    """Return the object of a class, made once for each set of arguments."""
    key = kind, repr((init, named, training))
    if key not in objects:
        torch.manual_seed(0)  # for what an object draws and does not register
        objects[key] = kind(*init, **named)
        if isinstance(objects[key], torch.nn.Module):
            if not training:  # a constructor may put layers in eval mode: train() changes these
                objects[key].eval()
            objects[key].to(device)
            check(objects[key], weights)
    return objects[key]


def check(model, weights):
    """Raise ValueError unless the model has weights of these names and shapes."""
    present = dict(model.named_parameters())
    present.update((name, value) for name, value in model.named_buffers() if name in weights)
    kind = type(model).__name__
    if missing := [name for name in weights if name not in present]:
        raise ValueError(f"{kind} has no weight {missing[0]!r}, which the baseline's class has: "
                         "name its parameters as there")
    if extra := [name for name in present if name not in weights]:
        raise ValueError(f"{kind} has a weight {extra[0]!r}, which the baseline's class lacks: "
                         "name its parameters as there")
    for name, value in weights.items():
        if present[name].shape != value.shape:
            raise ValueError(f"{kind}: the weight {name!r} has shape {tuple(present[name].shape)}, "
                             f"in the baseline's class {tuple(value.shape)}")
'''
"""Source that makes the object whose method is called: a PyTorch `Model` or another class."""


def adapter(facts: ModuleFacts, source: str) -> str:
    """Return the adapter: it calls the loaded source's ModelNew or Model with given weights."""
    names = _inputs(facts)
    tensor = names[0] if names else "weights[WEIGHTS[0]]"
    return f'''"""Calls ModelNew, or Model, of a source with each call's own weights and inputs.

Made by kopt new from {source}. kopt uses the baseline's copy: no candidate can change it.
"""

import torch

{_constants(facts)}


def {FUNCTION}(module, {", ".join([*names, "*weights"])}):
    weights = dict(zip(WEIGHTS, weights))
    kind = getattr(module, "ModelNew", None) or module.Model
    model = object_of(kind, INIT, INIT_NAMED, TRAINING, weights, {tensor}.device)
    value = torch.func.functional_call(model, weights, {_call(facts)})
{_check_of_names(facts)}    is_plain = type(value) is torch.Tensor and value.dtype != torch.bool
    return value if is_plain else tuple(tensors(value))

{OBJECTS}
{SHARED}'''


def reference(facts: ModuleFacts, source: str, folder: str) -> str:
    """Return the reference: it calls the baseline's own Model, in the dtype of the weights."""
    up = os.path.relpath(source, folder)
    unpacked = "\n    ".join(f"{name} = given[{name!r}]" for name in _inputs(facts))
    return f'''"""Computes the expected result with Model of {PurePosixPath(source).name}.

Made by kopt new. kopt runs the baseline's copy of both files, in a process of its own.
"""

import importlib.util
import os

import torch

{_constants(facts)}
WRITTEN = {[arg.name for arg in facts.args if arg.written]!r}
path = os.path.join(os.path.dirname(os.path.abspath(__file__)), {up!r})
spec = importlib.util.spec_from_file_location("kopt_problem", path)
problem = importlib.util.module_from_spec(spec)
spec.loader.exec_module(problem)
models = {{}}


def {REFERENCE}(**given):
    weights = {{name: given[name].clone() if name in WRITTEN else given[name] for name in WEIGHTS}}
    device = next(iter(given.values())).device
    wide = any(value.dtype == torch.float64 for value in given.values())
    if (wide, device) not in models:
        torch.manual_seed(0)
        model = problem.Model(*INIT, **INIT_NAMED)
        if not TRAINING:
            model.eval()
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if name in WEIGHTS:  # each call passes them: a second copy may not fit on the card
                tensor.data = tensor.data.new_empty(0)
        models[wide, device] = (model.double() if wide else model).to(device)
    {unpacked}
    with torch.no_grad():
        value = torch.func.functional_call(models[wide, device], weights, {_call(facts)})
    written = [weights[name] for name in WRITTEN]
    return tuple(part.to(device) for part in [*written, *tensors(value)])

{SHARED}'''


def _constants(facts: ModuleFacts) -> str:
    return "\n".join([f"INIT = {facts.init}", f"INIT_NAMED = {facts.init_named}",
                      f"WEIGHTS = {facts.weights!r}", f"TRAINING = {facts.training}"])


def _check_of_names(facts: ModuleFacts) -> str:
    """Return lines that reject a returned dict whose keys are not those of the baseline's dict."""
    if not facts.names:
        return ""
    return f'''    if type(value) is not dict or sorted(map(str, value)) != {list(facts.names)!r}:
        raise ValueError({f"the baseline returns a dict with {', '.join(facts.names)}"!r})
'''


def _inputs(facts: ModuleFacts) -> list[str]:
    return [arg.name for arg in facts.args if not arg.weight]


def _call(facts: ModuleFacts) -> str:
    return f"({', '.join(facts.call)}{',' if len(facts.call) == 1 else ''})"
