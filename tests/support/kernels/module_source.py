"""Sources of PyTorch modules, and their rewrites as a campaign finds them."""

from __future__ import annotations

from pathlib import Path

from engine.discovery.module import draft_module
from engine.rewrites import module_rewrite
from engine.rewrites.module_rewrite import ModuleRewrites
from tests.support.programs import shared_zygotes

INPUTS = "\n\ndef get_inputs():\n    return [{}]\n\n\ndef get_init_inputs():\n    return []\n"
HEAD = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n\n" \
       "class Model(nn.Module):\n"


def rewrites(folder: Path, text: str) -> ModuleRewrites:
    """Return the rewrites of a module's source, as a campaign finds them."""
    (folder / "problem").mkdir(parents=True)
    project = folder / "problem"
    (project / "base.py").write_text(text)
    zygote = shared_zygotes.module_reader()
    draft = draft_module.draft(project, "base.py", "kopt_task", folder, sizes={}, small=False,
                               zygote=zygote)
    for name, content in draft.files.items():
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text(content)
    return module_rewrite.find(draft.target, project, project, folder, zygote=zygote)
