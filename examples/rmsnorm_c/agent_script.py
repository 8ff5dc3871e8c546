"""A script that answers in place of a language model in the agent's slots of `kopt demo --agent`.

As a model would, it gets the messages of one attempt and returns a text and a shell command. What it
does follows from them: the bottleneck, the source and, in a repair, kopt's complaint. It knows this
kernel alone, and its first change forgets the columns that fill no vector.
"""

import re

SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
SOURCE = "rmsnorm.c"
WIDE = 16
START = "        int64_t c = 0;\n"
WIDE_LOOP = f"""\
        float wide[{WIDE}] = {{0}};
        for (; c + {WIDE} <= cols; c += {WIDE})
            for (int lane = 0; lane < {WIDE}; lane++) wide[lane] += row[c + lane] * row[c + lane];
        for (int lane = 0; lane < {WIDE}; lane++) partial[0] += wide[lane];
"""
REST = """\
        for (; c + LANES <= cols; c += LANES)
            for (int lane = 0; lane < LANES; lane++) {
                float value = row[c + lane];
                partial[lane] += value * value;
            }
        for (; c < cols; c++) partial[0] += row[c] * row[c];
"""
DIVIDED = "row[k] / sqrtf(sum / (float)cols + eps) * weight[k]"
SCALED = "row[k] * scale * weight[k]"
OUTPUT_LOOP = "        for (int64_t begin = 0;"
SCALE = "        float scale = 1.0f / sqrtf(sum / (float)cols + eps);\n"


def answer(messages):
    """Return a text and a command of the tool `bash` for the messages of a request."""
    prompt = next(message["content"] for message in messages if message["role"] == "user")
    outputs = [message["content"] for message in messages if message["role"] == "tool"]
    if not outputs:
        return look(prompt)
    if len(outputs) == 1:
        source = outputs[0].partition("<output>\n")[2].removesuffix("</output>")
        return change(prompt, source)
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
            "the memory alone takes, so the loops are slow and not the memory. I read them."), command


def change(prompt, source):
    if "## Repair" in prompt:
        return repair(prompt, source)
    if "canonical" in found(r"One hypothesis for this attempt: (.+)", prompt):
        if DIVIDED not in source:
            return "Each row is divided once already. I change nothing.", SUBMIT
        return written("Hypothesis: two partial sums by the knob LANES, and one square root and one "
                       "division a row; each element costs a division now.",
                       re.sub(r"LANES \d+ ", "LANES 2 ", source, count=1).replace(
                           OUTPUT_LOOP, SCALE + OUTPUT_LOOP).replace(DIVIDED, SCALED))
    if REST not in source:
        return "The sum has no dependent chain that I know how to break. I change nothing.", SUBMIT
    return written(f"Hypothesis: {WIDE} partial sums fill vectors; each addition waits for the one "
                   "before it now.", source.replace(START + REST, START + WIDE_LOOP))


def repair(prompt, source):
    """Add what the complaint shows to be missing: columns of a class that fill no vector."""
    name = found(r"rejected: .*?class (\w+)", prompt)
    columns = int(found(rf"\b{name} \([^)]*cols=(\d+)", prompt) or 0) if name else 0
    if columns % WIDE == 0 or WIDE_LOOP not in source:
        return "I do not know what is wrong. I give this change up.", SUBMIT
    return written(f"Class {name} has {columns} columns, no multiple of {WIDE}: the last "
                   f"{columns % WIDE} of each row are in no sum. The old loops take them.\n"
                   f"Hypothesis: {WIDE} partial sums fill vectors, and the old loops take the rest "
                   "of a row.", source.replace(WIDE_LOOP, WIDE_LOOP + REST))


def written(text, source):
    """Return a text, and a command that writes the source and compiles it."""
    return text, (f"cp {SOURCE} $HOME/before.c\ncat > {SOURCE} <<'END'\n{source.rstrip()}\nEND\n"
                  f"cc -O3 -march=native -Wall -shared -fPIC -o $HOME/kernel.so {SOURCE} -lm")


def found(pattern, text):
    match = re.search(pattern, text)
    return match[1] if match else ""
