#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every field of kernel.h that a kernel reads has a case that varies it and a mutant that ignores it.

Compares the structs of kernels/kernel.h with tests/mutants/fields.def. tests/run.sh runs it with /usr/bin/python3.
Needs $KVGAUGE and $KVG_SOURCE.
"""
import os
import re
import subprocess
import sys

SOURCE = os.environ.get("KVG_SOURCE", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
KVGAUGE = os.environ.get("KVGAUGE", os.path.join(SOURCE, "build", "kvgauge"))
# The structs that the harness fills for a kernel. kvg_arithmetic and kvg_kernel are the kernel's own.
INPUTS = ["kvg_problem", "kvg_pages", "kvg_scale", "kvg_scales", "kvg_store_args", "kvg_quantize_q_args",
          "kvg_attention_args"]
faults = []


def wrong(text):
    faults.append(text)


def read(*path):
    with open(os.path.join(SOURCE, *path), encoding="utf-8") as f:
        return f.read()


def fields_of_kernel_h():
    """(struct, field) of every member, in order."""
    text = re.sub(r"/\*.*?\*/", "", read("kernels", "kernel.h"), flags=re.S)
    found = []
    for name in INPUTS:
        body = re.search(r"struct %s \{(.*?)\n\};" % name, text, re.S).group(1)
        for declaration in body.split(";"):
            words = declaration.strip()
            if not words:
                continue
            first, *others = words.split(",")
            members = [re.search(r"(\w+)$", first.strip()).group(1)]
            members += [re.search(r"(\w+)$", o.strip()).group(1) for o in others]
            found += [(name, m) for m in members]
    assert len(found) > 60, "kernel.h was not understood: %d fields" % len(found)
    return found


def table():
    """Lines of fields.def: (struct, field) to (cases, mutants), or to None where the field is implied."""
    text = re.sub(r"/\*.*?\*/", "", read("tests", "mutants", "fields.def"), flags=re.S)
    lines = {}
    for struct, field, cases, mutants in re.findall(r'^FIELD\((\w+), (\w+), "(.*?)", "(.*?)"\)$', text, re.M):
        lines[struct, field] = (cases, mutants.split())
    for struct, field, why in re.findall(r'^IMPLIED\((\w+), (\w+), "(.*?)"\)$', text, re.M):
        assert why
        lines[struct, field] = None
    assert len(lines) == len(re.findall(r"^(FIELD|IMPLIED)\(", text, re.M)), "a line of fields.def was not understood"
    return lines


def mutants():
    names = set(re.findall(r"^MUTANT\((\w+),", read("tests", "mutants", "faults.def"), re.M))
    cuda = re.findall(r"^MUTANT\((\w+),", read("tests", "mutants", "cuda", "faults.def"), re.M)
    return names | {"cuda:" + n for n in cuda}


def cases(suite, *options):
    """Case strings of a suite, each with a blank at its end so that a pattern can end a number."""
    out = subprocess.run([KVGAUGE, "list", "--suite", suite, *options], check=True, capture_output=True, text=True)
    return [line + " " for line in out.stdout.splitlines() if line.startswith("kernel=")]


def main():
    lines, known, fields = table(), mutants(), fields_of_kernel_h()
    suites = {
        "quick": cases("quick"),
        "mutants": cases(os.path.join(SOURCE, "tests", "mutants", "mutants.yaml"), "--kernel", "best"),
    }
    for field in fields:
        if field not in lines:
            wrong("%s.%s is not in tests/mutants/fields.def" % field)
    for field, line in lines.items():
        name = "%s.%s" % field
        if field not in fields:
            wrong(name + " is in fields.def, and kernel.h does not have it")
        if line is None:
            continue
        pattern, names = line
        if not names:
            wrong(name + ": no mutant ignores it")
        for mutant in names:
            if mutant not in known:
                wrong("%s: there is no mutant %s" % (name, mutant))
        for suite, strings in suites.items():
            if not any(re.search(pattern, s) for s in strings):
                wrong("%s: no case of suite %s matches '%s'" % (name, suite, pattern))
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
