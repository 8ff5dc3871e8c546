"""A script that answers in place of a language model in the agent's slots of `kopt demo --agent`.

As a model would, it gets the messages of one attempt and returns a text and a shell command. What it
does follows from them: the bottleneck, the source and, in a repair, kopt's complaint. It knows this
kernel alone, and its first change takes the number of rows for that of columns.
"""

import re

SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
SOURCE = "rmsnorm.c"
OUTPUT_LOOP = "        for (int64_t begin = 0;"
DIVIDED, SCALED = "row[k] / sqrtf(sum / (float)cols + eps)", "row[k] * scale"
SCALE = "        float scale = 1.0f / sqrtf(sum / (float)cols + eps);\n"
WRONG_SCALE = SCALE.replace("cols", "rows")
SUM_LOOP = "        for (; c + LANES <= cols; c += LANES)\n"
WIDE_LOOP = """\
        float wide[16] = {0};
        for (; c + 16 <= cols; c += 16)
            for (int lane = 0; lane < 16; lane++) wide[lane] += row[c + lane] * row[c + lane];
        for (int lane = 0; lane < 16; lane++) partial[0] += wide[lane];
"""


def answer(messages):
    """Return a text and a command of the tool `bash` for the messages of a request."""
    prompt = next(message["content"] for message in messages if message["role"] == "user")
    outputs = [message["content"] for message in messages if message["role"] == "tool"]
    if not outputs:
        return look(prompt)
    if len(outputs) == 1:
        return change(prompt, outputs[0].partition("<output>\n")[2].removesuffix("</output>"))
    if len(outputs) == 2 and "<returncode>0<" not in outputs[1]:
        return "My change does not compile; I take it back.", f"cp $HOME/before.c {SOURCE}"
    return "It compiles. kopt judges it.", SUBMIT


def look(prompt):
    command = f"cat {SOURCE}"
    if complaint := found(r"which was rejected: (.+)", prompt):
        return f"My change was rejected: {complaint} I read it again.", command
    limit = found(r"The bottleneck it attacks: (.+)", prompt)
    times = re.search(r"([\d.]+) us against a roofline of ([\d.]+) us", limit)
    if not times:
        return f"The bottleneck: {limit}. I read the source.", command
    return (f"The bottleneck: {limit}. That is {float(times[1]) / float(times[2]):.0f} times what "
            "memory alone takes, so that the loops are slow and not the memory. I read them."), command


def change(prompt, source):
    if "## Repair" in prompt:
        return repair(prompt, source)
    if "canonical" in found(r"One hypothesis for this attempt: (.+)", prompt):
        if SUM_LOOP not in source or WIDE_LOOP in source:
            return "The sum has no dependent chain that I can break. I change nothing.", SUBMIT
        return written("Hypothesis: sixteen partial sums fill vectors; each addition waits for the one "
                       "before it now.", source.replace(SUM_LOOP, WIDE_LOOP + SUM_LOOP))
    if DIVIDED not in source:
        return "Each row is divided once already. I change nothing.", SUBMIT
    return written("Hypothesis: one square root and one division a row; each element costs both now.",
                   source.replace(OUTPUT_LOOP, WRONG_SCALE + OUTPUT_LOOP).replace(DIVIDED, SCALED))


def repair(prompt, source):
    """Correct the scale, if the class that the complaint names has not as many rows as columns."""
    name = found(r"which was rejected: .*?class (\w+)", prompt)
    sizes = re.search(rf"\b{name} \(rows=(\d+), cols=(\d+)\)", prompt) if name else None
    if sizes is None or sizes[1] == sizes[2] or WRONG_SCALE not in source:
        return "I do not know what is wrong. I give this change up.", SUBMIT
    return written(f"Class {name} has {sizes[1]} rows and {sizes[2]} columns: I divide the sum of a row "
                   "by the number of rows. The mean is over the columns.\n"
                   "Hypothesis: one square root and one division a row instead of one for each element.",
                   source.replace(WRONG_SCALE, SCALE))


def written(text, source):
    """Return a text, and a command that writes the source and compiles it."""
    return text, (f"cp {SOURCE} $HOME/before.c\ncat > {SOURCE} <<'END'\n{source.rstrip()}\nEND\n"
                  f"cc -O2 -march=native -Wall -shared -fPIC -o $HOME/kernel.so {SOURCE} -lm")


def found(pattern, text):
    match = re.search(pattern, text)
    return match[1] if match else ""
