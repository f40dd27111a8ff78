#!/usr/bin/env python3
"""Plants one failure for each rule of tidy.py in a small tree and expects it to be found; the tree without it must be clean."""
import os
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tidy

CLEAN = {
    "src/base/a.h": "#pragma once\ninline int one() { return 1; }\n",
    "src/memory/m.h": '#pragma once\n#include "base/a.h"\n',
    "src/server/s.cpp": '#include "memory/m.h"\n\nnamespace x {\nint f(int a) {\n  if (a) {\n    return 1;\n  }\n  return 2;\n}\n}  // namespace x\n',
    "docs/page.md": "See page.md.\n",
}
LONG_BODY = "".join(f"  x += {i};\n" for i in range(80))
PLANTED = [
    ("an include that goes up", "src/base/b.h", '#pragma once\n#include "server/s.h"\n', None),
    ("an include up to a file that exists", "src/base/b.h", '#pragma once\n#include "memory/m.h"\n', "base may not include memory"),
    ("an unknown layer", "src/utils/u.h", "#pragma once\n", "not in the table"),
    ("an include by a short path", "src/memory/n.cpp", '#include "m.h"\n', "not the path"),
    ("a long file", "src/base/long.cpp", "int a;\n" * 601, "lines; above"),
    ("a long line", "src/base/wide.cpp", "//" + " x" * 100 + "\n", "columns"),
    ("a tab", "src/base/tab.cpp", "int\ta;\n", "tab or space"),
    ("a long function", "src/base/f.cpp", "int f(int x) {\n" + LONG_BODY + "  return x;\n}\n", "function of 83 lines"),
    ("a long member function", "src/base/f.h", "#pragma once\nclass A {\n  int f(int x) const {\n" + LONG_BODY + "    return x;\n  }\n};\n", "function of"),
    ("a path of one machine", "docs/m.md", "See " + "/wo" + "rk/main.\n", "path of one machine"),
    ("an open end", "src/base/t.cpp", "// TO" + "DO later\n", "open end"),
    ("an issue", "docs/i.md", "As iss" + "ue 4 says.\n", "reference to an issue"),
    ("a copyright line", "src/base/c.cpp", "// Copy" + "right someone\n", "copyright"),
    ("a document that is not there", "src/base/d.cpp", "// See docs/nowhere.md.\n", "does not exist"),
    ("relaxed arithmetic", "src/CMakeLists.txt", "add_compile_options(-ffast-" + "math)\n", "relaxed"),
    ("an atomic float", "src/base/at.cpp", "std::atomic<" + "float> sum;\n", "atomic"),
    ("the platform's exp", "src/sampling/e.cpp", "double f(double x) { return std::e" + "xp(x); }\n", "platform's"),
    ("a header without a guard", "src/base/g.h", "int g();\n", "pragma once"),
]
ALLOWED = [
    ("a reason for a long file", "src/base/long.cpp", "// Long: one table.\n" + "int a;\n" * 601),
    ("a long kernel", "src/kernels/k.cpp", "int f(int x) {\n" + LONG_BODY + "  return x;\n}\n"),
    ("a table", "src/base/table.cpp", "const T& f() {  // table\n" + LONG_BODY + "}\n"),
    ("an open end with its reason", "src/base/t.cpp", "// TO" + "DO(when graphs come) fuse\n"),
    ("exp in a comment", "src/sampling/e.cpp", "// never std::e" + "xp(x)\n"),
    ("exp in a reference", "src/kernels/reference/e.cpp", "double f(double x) { return std::e" + "xp(x); }\n"),
    ("a long namespace", "src/base/n.cpp", "namespace n {\n" + "int a;\n" * 80 + "}\n"),
]


def findings(extra):
    with tempfile.TemporaryDirectory() as root:
        for path, text in {**CLEAN, **extra}.items():
            full = os.path.join(root, path)
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, "w", encoding="utf-8") as file:
                file.write(text)
        return tidy.check(root)


def main():
    wrong = 0
    if findings({}):
        print("the clean tree has findings:", findings({}))
        wrong += 1
    for name, path, text, words in PLANTED:
        found = findings({path: text})
        if not any(f.startswith(path + ":") and (words is None or words in f) for f in found):
            print(f"missed: {name}: {found}")
            wrong += 1
    for name, path, text in ALLOWED:
        found = findings({path: text})
        if found:
            print(f"false alarm: {name}: {found}")
            wrong += 1
    print(f"tidy_test: {len(PLANTED)} planted, {len(ALLOWED)} allowed, {wrong} wrong")
    sys.exit(1 if wrong else 0)


main()
