"""A script that answers in place of a language model in the agent's slots of `kopt demo --agent`.

As a model would, it gets the messages of one attempt and returns a text and a shell command. What it
does follows from them: the bottleneck, the source and, in a repair, kopt's complaint. It knows this
kernel alone, and its first change adds sums that belong to different maxima.
"""

import re
from textwrap import indent

SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
SOURCE = "kernel.py"
TWO_PASSES = re.compile(r'    largest = tl\.full\(\(BLOCK,\), float\("-inf"\), tl\.float32\)\n'
                        r".*?    scale = 1\.0 / tl\.sum\(total, 0\)\n", re.DOTALL)
ONE_PASS = """\
    if cols > 16 * BLOCK:
        largest = tl.full((BLOCK,), -3.4e38, tl.float32)  # finite: a row may begin with -inf
        total = tl.zeros((BLOCK,), tl.float32)
        for start in tl.range(0, cols, BLOCK, num_stages=NUM_STAGES):
            at = start + lanes
            value = tl.load(x + at, mask=at < cols, other=float("-inf")).to(tl.float32)
            apart = tl.exp(-tl.abs(value - largest))
            total = tl.where(value > largest, total * apart + 1.0, total + apart)
            largest = tl.maximum(largest, value)
        peak = tl.max(largest, 0)
        scale = 1.0 / tl.sum(total, 0)
    else:
"""
SUM, SCALED_SUM = "tl.sum(total, 0)\n", "tl.sum(total * tl.exp(largest - peak), 0)\n"
BLOCK, WIDE_BLOCK = "BLOCK = 128  #", "BLOCK = 1024  #"
THREAD, WIDE_THREAD = "PER_THREAD = 1  #", "PER_THREAD = 4  #"


def answer(messages):
    """Return a text and a command of the tool `bash` for the messages of a request."""
    prompt = next(message["content"] for message in messages if message["role"] == "user")
    outputs = [message["content"] for message in messages if message["role"] == "tool"]
    if not outputs:
        complaint = found(r"which was rejected: (.+)", prompt)
        return (f"My change was rejected: {complaint} I read it again." if complaint else
                f"The bottleneck: {found(r'The bottleneck it attacks: (.+)', prompt)}. I read the "
                "source."), f"cat {SOURCE}"
    if len(outputs) == 1:
        return change(prompt, outputs[0].partition("<output>\n")[2].removesuffix("</output>"))
    if len(outputs) == 2 and "<returncode>0<" not in outputs[1]:
        return "Python does not read my change; I take it back.", f"cp $HOME/before.py {SOURCE}"
    return "kopt judges it.", SUBMIT


def change(prompt, source):
    if "## Repair" in prompt:
        if "wrong result" not in prompt or SUM not in source or ONE_PASS not in source:
            return "I do not know what is wrong. I give this change up.", SUBMIT
        return written("Each lane has a maximum of its own, and I add sums that belong to different "
                       "ones. I scale them to the row's maximum first.\nHypothesis: a maximum and a "
                       "sum for each lane make one pass of two; the row is read twice, not thrice.",
                       source.replace(ONE_PASS, ONE_PASS.replace(SUM, SCALED_SUM)))
    if "No hypothesis is given" in prompt:
        if BLOCK not in source or THREAD not in source:
            return "The blocks are wide already. I change nothing.", SUBMIT
        return written("Hypothesis: blocks of 1024 elements, four for each thread, have more loads in "
                       "flight than blocks of 128.",
                       source.replace(BLOCK, WIDE_BLOCK).replace(THREAD, WIDE_THREAD))
    if not TWO_PASSES.search(source):
        return "The row is not read thrice any more. I change nothing.", SUBMIT
    return written("Hypothesis: a maximum and a sum for each lane make one pass of two; a long row "
                   "is read twice, not thrice.", TWO_PASSES.sub(
                       lambda found: ONE_PASS + indent(found[0], "    "), source, count=1))


def written(text, source):
    """Return a text, and a command that writes the source and reads it as Python."""
    return text, (f"cp {SOURCE} $HOME/before.py\ncat > {SOURCE} <<'END'\n{source.rstrip()}\nEND\n"
                  f"python3 -c 'compile(open(\"{SOURCE}\").read(), \"{SOURCE}\", \"exec\")'")


def found(pattern, text):
    match = re.search(pattern, text)
    return match[1] if match else ""
