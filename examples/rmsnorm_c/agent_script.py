"""A script that answers in place of a language model in the agent's slots of `kopt demo --agent`.

As a model would, it gets the messages of one attempt and returns a text and a shell command. What
it does follows from them: the bottleneck, the source and, in a repair, kopt's complaint. It knows
this kernel alone, and its first sum forgets the columns that fill no vector.
"""

import re

SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
SOURCE = "rmsnorm.c"
SUM = """\
        for (; c + LANES <= cols; c += LANES)
            for (int lane = 0; lane < LANES; lane++) {
                float value = row[c + lane];
                partial[lane] += value * value;
            }
        for (; c < cols; c++) partial[0] += row[c] * row[c];
"""
WIDE_SUM = """\
        float wide[16] = {0};
        for (; c + 16 <= cols; c += 16)
            for (int lane = 0; lane < 16; lane++) wide[lane] += row[c + lane] * row[c + lane];
        for (int lane = 0; lane < 16; lane++) partial[0] += wide[lane];
"""
OUTPUT_LOOP = "        for (int64_t begin = 0;"
DIVIDED, SCALED = "row[k] / sqrtf(sum / (float)cols + eps)", "row[k] * scale"
SCALE = "        float scale = 1.0f / sqrtf(sum / (float)cols + eps);\n"


def answer(messages):
    """Return a text and a command of the tool `bash` for the messages of a request."""
    prompt = next(message["content"] for message in messages if message["role"] == "user")
    outputs = [message["content"] for message in messages if message["role"] == "tool"]
    if not outputs:
        return look(prompt), f"cat {SOURCE}"
    if len(outputs) == 1:
        return change(prompt, outputs[0].partition("<output>\n")[2].removesuffix("</output>"))
    if len(outputs) == 2 and "<returncode>0<" not in outputs[1]:
        return "My change does not compile; I take it back.", f"cp $HOME/before.c {SOURCE}"
    return "It compiles. kopt judges it.", SUBMIT


def look(prompt):
    if complaint := found(r"which was rejected: (.+)", prompt):
        return f"My change was rejected: {complaint} I read it again."
    limit = found(r"The bottleneck it attacks: (.+)", prompt)
    times = re.search(r"([\d.]+) us against a roofline of ([\d.]+) us", limit)
    if times:
        limit += (f". That is {float(times[1]) / float(times[2]):.0f} times what memory alone "
                  "takes, so that the loops are slow and not the memory")
    return f"The bottleneck: {limit}. I read the source."


def change(prompt, source):
    if "## Repair" in prompt:
        return repair(prompt, source)
    if "No hypothesis is given" in prompt:
        if DIVIDED not in source:
            return "Each row is divided once already. I change nothing.", SUBMIT
        return written("Hypothesis: one square root and one division a row instead of one for each "
                       "element.", source.replace(OUTPUT_LOOP, SCALE + OUTPUT_LOOP).replace(
                           DIVIDED, SCALED))
    if SUM not in source:
        return "The sum is no loop that I know. I change nothing.", SUBMIT
    return written("Each addition of the sum waits for the one before it, so that it fills no "
                   "vector.\nHypothesis: sixteen partial sums fill vectors.",
                   source.replace(SUM, WIDE_SUM))


def repair(prompt, source):
    """Add what the class that the complaint names shows to be missing."""
    name = found(r"which was rejected: .*?class (\w+)", prompt)
    columns = int(found(rf"\b{name} \([^)]*cols=(\d+)", prompt) or 0) if name else 0
    if columns % 16 == 0 or WIDE_SUM not in source:
        return "I do not know what is wrong. I give this change up.", SUBMIT
    return written(f"Class {name} has {columns} columns, no multiple of 16: the last "
                   f"{columns % 16} of each row are in no sum. The old loop adds them.\n"
                   "Hypothesis: sixteen partial sums fill vectors, and the old loop adds the rest "
                   "of a row.", source.replace(WIDE_SUM, WIDE_SUM + SUM))


def written(text, source):
    """Return a text, and a command that writes the source and compiles it."""
    return text, (f"cp {SOURCE} $HOME/before.c\ncat > {SOURCE} <<'END'\n{source.rstrip()}\nEND\n"
                  f"cc -O2 -march=native -Wall -shared -fPIC -o $HOME/kernel.so {SOURCE} -lm")


def found(pattern, text):
    match = re.search(pattern, text)
    return match[1] if match else ""
