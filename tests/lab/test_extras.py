# SPDX-License-Identifier: Apache-2.0
"""Programs from Debian's packages: which files go to a guest, and which version they are."""

from __future__ import annotations

import sys
import tarfile
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from lab import extras  # noqa: E402
from lab.errors import LabError  # noqa: E402


class ExtrasTest(unittest.TestCase):
    """Programs that guests do not have."""

    def setUp(self) -> None:
        self._temp = tempfile.TemporaryDirectory()
        self.tree = Path(self._temp.name)
        needed = {"prog": ["libx.so.1", "libc.so.6", "libgone.so.1"],
                  "libx.so.1.0": ["libblas.so.3"], "plugin.so": ["libx.so.1"]}
        patch = mock.patch.object(extras, "dynamic", lambda path: (
            {"libx.so.1.0": "libx.so.1"}.get(path.name, path.name), needed.get(path.name, [])))
        patch.start()
        self.addCleanup(patch.stop)
        libraries = extras.LIBRARIES
        for name, text in (("usr/bin/prog", "\x7fELF"), ("usr/share/prog/words/a.txt", "a"),
                           (f"{libraries}/libc.so.6", "\x7fELF"),
                           (f"{libraries}/libx.so.1.0", "\x7fELF"),
                           (f"{libraries}/blas/libblas.so.3", "\x7fELF"),
                           (f"{libraries}/prog/plugin.so", "\x7fELF")):
            path = self.tree / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        (self.tree / libraries / "libx.so.1").symlink_to("libx.so.1.0")

    def tearDown(self) -> None:
        self._temp.cleanup()

    def test_libraries_go_beside_the_program_in_one_folder(self) -> None:
        found = extras.closure(self.tree, [self.tree / "usr/bin/prog"])
        self.assertEqual(sorted(found), ["libblas.so.3", "libx.so.1", "prog"])
        found = extras.closure(self.tree, [self.tree / "usr/bin/prog"], libc=True)
        self.assertEqual(sorted(found), ["libblas.so.3", "libc.so.6", "libx.so.1", "prog"])

    def test_files_that_stay_in_place_have_their_libraries_where_they_are_looked_for(self) -> None:
        found = extras.in_place(self.tree, [
            self.tree / name for name in ("usr/bin/prog", "usr/share/prog",
                                          f"{extras.LIBRARIES}/prog")])
        self.assertEqual(sorted(found), sorted([
            "usr/bin/prog", "usr/share/prog/words/a.txt", f"{extras.LIBRARIES}/prog/plugin.so",
            f"{extras.LIBRARIES}/plugin.so",  # it may be the library of something, too
            f"{extras.LIBRARIES}/libx.so.1", f"{extras.LIBRARIES}/libblas.so.3"]))
        self.assertEqual(found[f"{extras.LIBRARIES}/libx.so.1"].name, "libx.so.1.0")

    def test_a_link_to_a_folder_stays_a_link(self) -> None:
        (self.tree / "usr/share/prog/1").symlink_to("words")
        found = extras.in_place(self.tree, [self.tree / "usr/share/prog"])
        self.assertEqual(sorted(found), ["usr/share/prog/1", "usr/share/prog/words/a.txt"])
        target = self.tree / "files.tar"
        extras.pack(found, target)
        with tarfile.open(target) as tar:
            self.assertEqual([(one.name, one.type, one.linkname) for one in tar],
                             [("usr/share/prog/1", tarfile.SYMTYPE, "words"),
                              ("usr/share/prog/words/a.txt", tarfile.REGTYPE, "")])

    def test_the_version_is_that_of_the_package_that_was_fetched(self) -> None:
        (self.tree / "versions").write_text("prog\t1.0-2\nlibx1\t3\n")
        self.assertEqual(extras.version(self.tree / "files.tar", "prog"), "prog 1.0-2")
        with self.assertRaisesRegex(LabError, "has nothing of pro$"):
            extras.version(self.tree / "files.tar", "pro")


if __name__ == "__main__":
    unittest.main()
