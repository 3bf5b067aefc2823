#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tools/check fails where it has to, on small trees made up for it."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TOOLS = Path(__file__).resolve().parent.parent.parent / "tools"
sys.path.insert(0, str(TOOLS))

from checks.rules import findings  # noqa: E402
from checks.tree import Tree  # noqa: E402


class Rules(unittest.TestCase):
    def plant(self, files: dict[str, str]) -> Path:
        """A work tree with these files."""
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        root = Path(directory.name)
        subprocess.run(["git", "init", "-q", str(root)], check=True)
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, encoding="utf-8")
        return root

    def check(self, rule: str, files: dict[str, str]) -> list[str]:
        """The findings of one rule in a tree with these files."""
        return [f"{finding.path}:{finding.line}: {finding.text}"
                for finding in findings(Tree(self.plant(files)), rule)]


class Program(Rules):
    def run_check(self, *words: str) -> tuple[int, str]:
        result = subprocess.run([str(TOOLS / "check"), *words], check=False, capture_output=True,
                                text=True)
        self.assertEqual(result.stderr, "")
        return result.returncode, result.stdout

    def test_prints_what_it_finds(self) -> None:
        root = self.plant({"a.py": "b = 1 \n"})
        self.assertEqual(self.run_check("--root", str(root), "text", "names"),
                         (1, "a.py:1: trailing space [text]\ncheck: 1 finding in 1 files\n"))
        (root / "a.py").write_text("b = 1\n", encoding="utf-8")
        self.assertEqual(self.run_check("--root", str(root), "text"),
                         (0, "check: 0 findings in 1 files\n"))


class Text(Rules):
    def test_long_lines(self) -> None:
        line = "word " * 20 + "."
        self.assertEqual(self.check("text", {"a.md": f"{line}\n- {line}\n{line[1:]}\n"}),
                         ["a.md:1: line longer than 100 columns",
                          "a.md:2: line longer than 100 columns"])

    def test_tables_code_and_links_may_be_long(self) -> None:
        line = "word " * 20 + "."
        link = "[text](" + "a" * 90 + ")"
        self.assertEqual(self.check("text", {
            "a.md": f"| {line} |\n```\n{line}\n```\nsee {link} and https://{'b' * 90}\n"}), [])

    def test_what_is_not_to_be_in_a_line(self) -> None:
        self.assertEqual(self.check("text", {"a.py": "# TO" + "DO\nb = 1 \n# /ho" + "me/me/x\n"}),
                         ["a.py:1: unfinished business: do it, or document the limit",
                          "a.py:2: trailing space", "a.py:3: a path of one machine"])


class Layers(Rules):
    def test_includes_and_namespaces(self) -> None:
        self.assertEqual(self.check("layers", {
            "device/gdma/a.h": '#include "base/fd.h"\n#include "rnic/qp.h"\n'
                               "void f(base::Fd, vfio_user::Region, ::openmana::eth::Frame);\n"
                               '// vfio_user::Region\nconst char* text = "rnic::Qp";\n',
            "device/fabric/b.cc": "rnic::Qp* qp; gdma::Key key; std::pci::Not no;\n"}),
            ["device/gdma/a.h:2: layer gdma may not include rnic/",
             "device/gdma/a.h:3: layer gdma may not use eth::",
             "device/gdma/a.h:3: layer gdma may not use vfio_user::"])

    def test_places_that_reach_into_the_adapter(self) -> None:
        files = {"device/rnic/adapter.cc": "void Adapter::f(Adapter& adapter) { adapter.x(); }\n",
                 "device/rnic/a.cc": "void Qp::f() {\n    adapter_.x();\n}\n",
                 "device/rnic/b.cc": "int f(Qp& qp) { return qp.adapter.x + qp.adapter.y(); }\n"}
        found = "device/rnic/a.cc:2: 3 places in 2 files reach into the adapter"
        self.assertEqual(self.check("layers", files), [found])
        listed = {"tools/checks/exceptions.txt": "layers adapter=3 because\n"}
        self.assertEqual(self.check("layers", files | listed), [])
        listed = {"tools/checks/exceptions.txt": "layers adapter=4 because\n"}
        self.assertEqual(self.check("layers", files | listed), [
            found,
            "tools/checks/exceptions.txt:1: not needed any more: adapter=4; remove the line"])

    def test_the_adapter_is_for_its_own_files(self) -> None:
        own = '#include "rnic/adapter.h"\nstruct Adapter;\n'
        self.assertEqual(self.check("layers", {
            "device/rnic/adapter.h": own, "device/rnic/commands.cc": own,
            "device/rnic/rnic.cc": own,
            "device/rnic/qp.cc": '#include "rnic/adapter.h"\nvoid f(Adapter& control);\n',
            "device/rnic/qp.h": "// Adapter\nclass AdapterEvents;\n",
            "device/fabric/nic.cc": '#include "rnic/adapter.h"\n'}),
            ["device/fabric/nic.cc:1: the adapter's header is for its own files",
             "device/rnic/qp.cc:1: the adapter's header is for its own files",
             "device/rnic/qp.cc:2: the adapter is for its own files"])


class Circles(Rules):
    def test_a_circle(self) -> None:
        self.assertEqual(self.check("circles", {
            "kernel/a.c": "int mana_b(void);\nint mana_a(void)\n{\n\treturn mana_b();\n}\n",
            "kernel/b.c": "int mana_b(void)\n{\n\treturn mana_table[0];\n}\n",
            "kernel/c.c": "const int mana_table[] = { 1 };\nint c(void) { return mana_a(); }\n",
            "kernel/d.c": "int d(void) { return mana_a(); }\n"}),
            ["kernel/a.c:1: 3 files make a circle: a.c uses mana_b of b.c, "
             "b.c uses mana_table of c.c, c.c uses mana_a of a.c"])

    def test_no_circle(self) -> None:
        self.assertEqual(self.check("circles", {
            "providers/a.c": "/* mana_c */\nint mana_a(void) { return mana_b(); }\n"
                             "static int local(void) { return x->mana_c + y.mana_c; }\n",
            "providers/b.c": "int mana_b(void) { return mana_c(); }\n"
                             "static int local(void) { return 1; }\n",
            "providers/c.c": 'int mana_c(void) { return local("mana_a"); }\n'
                             "extern int mana_a_too;\n",
            "kernel/x.c": "int mana_c(void) { return mana_a(); }\n"}), [])


class Strata(Rules):
    def test_places_of_the_kernel_driver(self) -> None:
        text = ("/* struct mana_hw_a_req, HAVE_A */\nstruct mana_hw_a_req request;\n"
                "int a = dev->gc->a;\nint b = copy_from_user(a, b, 1);\n#ifdef HAVE_A\n"
                "struct mana_hw_a_cqe cqe;\n")
        self.assertEqual([words.split(" outside")[0] for words in
                          self.check("strata", {"kernel/a.c": text, "device/a.cc": text})],
                         ["kernel/a.c:2: a message layout", "kernel/a.c:3: the parent's structures",
                          "kernel/a.c:4: a copy from or to user space",
                          "kernel/a.c:5: a kernel's oddity"])
        self.assertEqual(self.check("strata", {
            "kernel/cmd_a.c": "struct mana_hw_a_req request;\n",
            "kernel/parent.c": "int a = dev->gc->a;\n",
            "kernel/udata.c": "int b = clear_user(a, 1);\n",
            "kernel/compat.h": "#ifdef HAVE_A\n"}), [])


class Size(Rules):
    def test_files(self) -> None:
        line = "int x;\n"
        self.assertEqual(self.check("size", {
            "device/rnic/a.h": line * 601, "device/rnic/b.h": line * 600,
            "kernel/a.c": line * 601, "providers/mana/a.c": line * 601,
            "include/mana/a.h": line * 601, "tests/a.py": "x = 1\n" * 1001,
            "tests/b.cc": line * 1000,
            "tools/a.py": "x = 1\n" * 2000}),
            ["device/rnic/a.h:1: 601 lines, and not 600 at most",
             "include/mana/a.h:1: 601 lines, and not 600 at most",
             "kernel/a.c:1: 601 lines, and not 600 at most",
             "providers/mana/a.c:1: 601 lines, and not 600 at most",
             "tests/a.py:1: 1001 lines, and not 1000 at most"])

    def functions(self, text: str, name: str = "device/rnic/a.cc") -> list[str]:
        return self.check("size", {name: text})

    def test_functions(self) -> None:
        body = "    x();\n" * 79
        for head, name in {"int f(int a) {": "f",
                           "template <class T = int>\nvoid A::B<T>::operator()(T a) const {":
                               "A::B<T>::operator()",
                           "A::A(int a) : a_(a), b_{1}, c_([&] { return 1; }) {": "A::A",
                           "TEST_F(Some, Case) {": "TEST_F(Some, Case)",
                           "static int\nf(int a)\n{": "f"}.items():
            with self.subTest(head):
                lines = head.count("\n") + 81
                self.assertEqual(
                    self.functions(f"namespace a {{\n\n// f() {{\n{head}\n{body}}}\n\n}}\n"),
                    [f"device/rnic/a.cc:4: {name} has {lines} lines, and not 80 at most"])

    def test_members_of_a_class(self) -> None:
        text = ("class A {\npublic:\n    void f() {\n" + "x();\n" * 79 +
                "    }\n    int g;\n};\n")
        self.assertEqual(self.functions(text),
                         ["device/rnic/a.cc:3: f has 81 lines, and not 80 at most"])

    def test_what_is_no_function_may_be_long(self) -> None:
        lines = "    1,\n" * 90
        self.assertEqual(self.functions(
            f"const int a[] = {{\n{lines}}};\nenum class B {{\n{lines}}};\n"
            f"struct C {{\n{'    int x;' * 90}}};\nconst auto d = [](int) {{\n{lines}}};\n"
            "int f() {\n" + "    x();\n" * 78 + "}\n" + 'const char* s = R"(f() {)";\n'), [])

    def test_branches_of_the_preprocessor(self) -> None:
        body = "    x();\n" * 40
        self.assertEqual(self.functions(
            f"#ifdef A\nint f(int a) {{\n#else\nint f() {{\n#endif\n{body}}}\n"
            f"#define M(a) \\\n    if (a) {{\nint g() {{\n{body}}}\n"), [])

    def test_exceptions(self) -> None:
        long = {"kernel/a.c": "int x;\n" * 601}
        name = "tools/checks/exceptions.txt"
        self.assertEqual(self.check("size", long | {name: "size kernel/a.c one table\n"}), [])
        self.assertEqual(self.check("size", long | {name: "size kernel/a.c\n"}),
                         [f"{name}:1: an exception without its reason"])
        self.assertEqual(
            self.check("size", {"kernel/a.c": "int x;\n",
                                name: "# list\nsize kernel/a.c one table\n"}),
            [f"{name}:2: not needed any more: kernel/a.c; remove the line"])
        self.assertEqual(
            self.check("text", {name: "size kernel/a.c one table\n"}), [])


class References(Rules):
    SPEC = {
        "docs/spec/gdma.md": "# GDMA\n## 3. Queues\n### 3.10 Arming\n1. Now.\n2. Later.\n"
                             "## Appendix B. Bytes\n",
        "docs/spec/rnic.md": "# RNIC\n## 3. Work queues\n### 3.9 Errors\n- a. first\n- b. then\n"
                             "### 3.12 Doorbells\nSee §3.9.\n",
        "docs/spec/roce.md": "# ROCE\n## 4. Responder\n### 4.4 NAKs\n(class J)\n## 10. Cases\n"
                             "### 10.7 Others\n| 139 | EcnMarking |\n| 140 | Cnp |\n"
                             "### 10.8 Invariants\n1. One.\n2. Two.\n",
        "docs/guide.md": "# Guide\n## The way in\n",
    }

    def findings(self, text: str, name: str = "device/a.h") -> list[str]:
        return self.check("references", self.SPEC | {name: text})

    def test_what_is_there_is_fine(self) -> None:
        self.assertEqual(self.findings(
            "/// RNIC 3.9, and GDMA 3.10 rule 2; RNIC 3, 3.9-3.12; GDMA Appendix B; ROCE 4\n"
            "/// and 10.7; rules a and b of RNIC 3.9; class J of ROCE 4.4; invariants 1 to 2;\n"
            "// ROCE 10: 139, 140\n"
            "// Linux 6.12 (RNIC 3.9; 7.2 does not); case 139 of ROCE 10.7; docs/guide.md\n"), [])

    def test_a_section_that_is_not_there(self) -> None:
        self.assertEqual(self.findings("// fine\n// see RNIC 3.4.\n"),
                         ["device/a.h:2: there is no RNIC 3.4"])

    def test_a_list_over_two_lines(self) -> None:
        self.assertEqual(self.findings(" * (GDMA 3, 3.10,\n * 3.11)\n", "kernel/a.c"),
                         ["kernel/a.c:1: there is no GDMA 3.11"])

    def test_ends_of_a_range(self) -> None:
        self.assertEqual(self.findings("RNIC 3.8-3.9, RNIC 3.9 to 3.13\n", "docs/a.md"),
                         ["docs/a.md:1: there is no RNIC 3.8",
                          "docs/a.md:1: there is no RNIC 3.13"])

    def test_a_section_of_the_same_document(self) -> None:
        self.assertEqual(self.findings("## 1. A\n§1 and §2.4\n", "docs/spec/gdma.md"),
                         ["docs/spec/gdma.md:2: there is no §2.4 here"])

    def test_rules_classes_cases_and_invariants(self) -> None:
        for text, wrong in {"GDMA 3.10 rule 3": "GDMA 3.10 has no 3",
                            "rules a and c of RNIC 3.9": "RNIC 3.9 has no c",
                            "class K of ROCE 4.4": "ROCE 4.4 has no K",
                            "case 138 of ROCE 10.7": "ROCE 10.7 has no 138",
                            "cases 139 to 141 of its catalogue": "ROCE 10 has no 141",
                            "ROCE 10.7, case 141": "ROCE 10.7 has no 141",
                            "ROCE 10: 139, 142": "ROCE 10 has no 142",
                            "invariant 3": "ROCE 10.8 has no 3"}.items():
            with self.subTest(text):
                self.assertEqual(self.findings(f"// {text}\n"), [f"device/a.h:1: {wrong}"])

    def test_documents_and_headings(self) -> None:
        self.assertEqual(self.findings("# docs/none.md\n", "tools/a.py"),
                         ["tools/a.py:1: there is no docs/none.md"])
        self.assertEqual(self.findings('# docs/guide.md, "The way in"; docs/guide.md, "The end"\n',
                                       "tools/a.py"),
                         ["tools/a.py:1: docs/guide.md has no heading #the-end"])
        self.assertEqual(self.findings("[a](guide.md#the-way-in) [b](guide.md#the-way-out)\n"
                                       "[c](#here)\n", "docs/a.md"),
                         ["docs/a.md:1: guide.md has no heading #the-way-out",
                          "docs/a.md:2: there is no heading #here here"])


if __name__ == "__main__":
    unittest.main()
