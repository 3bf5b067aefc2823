# SPDX-License-Identifier: Apache-2.0
"""The lab without guests: parsing, keys, the channel's protocol, refusals in one clear line."""

from __future__ import annotations

import email
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from dataclasses import replace
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
MANALAB = ROOT / "tools" / "manalab"
sys.path.insert(0, str(ROOT / "tools"))

from lab import (building, channel, cli, debian, debug_kernel, host, image, janitor,  # noqa: E402
                 kvm, manad, ours, prepare, proc, qemu, rights, roots, session, stage)
from lab.errors import CommandTimeout, GuestDied, GuestTimeout, LabError  # noqa: E402
from lab.guest import FATAL, Guest, GuestSpec  # noqa: E402
from lab.session import Lab  # noqa: E402


def manalab(*args: str, env: dict[str, str] | None = None
            ) -> subprocess.CompletedProcess[str]:
    """Runs manalab with a deadline."""
    return subprocess.run([str(MANALAB), *args], capture_output=True, text=True, timeout=60,
                          check=False, env={**os.environ, **(env or {})})


class DebianTest(unittest.TestCase):
    """What is taken from apt's configuration."""

    def test_index_targets_give_mirror_and_key(self) -> None:
        text = ("Translations|http://m.example/debian/|Debian|Debian|/k.gpg\n"
                "Packages|http://m.example/debian-security/|Debian|Debian-Security|/k.gpg\n"
                "Packages|http://m.example/debian/|Debian|Debian|/k.gpg\n")
        self.assertEqual(debian.parse_index_targets(text), ("http://m.example/debian", "/k.gpg"))

    def test_other_distributions_are_no_mirror(self) -> None:
        text = "Packages|http://m.example/ubuntu/|Ubuntu|Ubuntu|/k.gpg\nnonsense\n"
        self.assertIsNone(debian.parse_index_targets(text))

    def test_sources_of_both_formats(self) -> None:
        one = "# deb http://no.example/debian x main\ndeb [arch=amd64] http://m.example/debian/ x"
        self.assertEqual(debian.parse_sources(one), "http://m.example/debian")
        deb822 = "Types: deb\nURIs: http://m.example/debian\nSuites: bookworm\n"
        self.assertEqual(debian.parse_sources(deb822), "http://m.example/debian")
        self.assertIsNone(debian.parse_sources("deb http://m.example/debian-security x main"))

    def test_settings_copied_are_those_of_reaching_a_mirror(self) -> None:
        text = ('Acquire::http::Proxy "http://p.example:3128";\nAPT::Architecture "amd64";\n'
                'Acquire::Retries "3";\nAcquire::http "";\nDir::Cache "x";\n')
        self.assertEqual(debian.parse_settings(text),
                         ['Acquire::http::Proxy "http://p.example:3128"', 'Acquire::Retries "3"'])

    def test_without_a_mirror_it_says_so(self) -> None:
        with mock.patch.object(debian, "_output", return_value=""), \
                mock.patch.object(debian, "parse_sources", return_value=None), \
                mock.patch.dict(os.environ, {"OPENMANA_MIRROR": ""}):
            with self.assertRaisesRegex(LabError, "no Debian mirror.*OPENMANA_MIRROR"):
                debian.find_mirror()

    def test_a_suite_of_backports_is_its_release_with_them(self) -> None:
        for suite, release, entries in (("trixie", "trixie", ["trixie"]),
                                        ("trixie-backports", "trixie",
                                         ["trixie", "trixie-backports"]),
                                        ("newest", "forky", ["forky", "trixie-backports"])):
            self.assertEqual(debian.release_of(suite), release)
            with mock.patch.object(debian, "find_mirror", return_value=debian.Mirror(
                    "http://m.example/debian", "/k.gpg")), \
                    mock.patch.object(debian, "find_program", return_value="mmdebstrap"), \
                    mock.patch.object(debian, "bootstrap_mode", return_value="root"), \
                    mock.patch.object(debian, "run_logged") as run:
                debian.bootstrap(Path("/t"), suite, ["a"], Path("/l"))
            words = run.call_args.args[0]
            self.assertEqual(words[words.index("/t") - 1:],
                             [release, "/t", *(f"deb http://m.example/debian {entry} main"
                                               for entry in entries)])
            self.assertNotIn("Default-Release", "".join(words))
            self.assertEqual("Pin: release n=trixie-backports" in "".join(words),
                             len(entries) == 2)


class ImageTest(unittest.TestCase):
    """Cache keys, archives, modules."""

    def test_key_depends_on_each_part_and_its_borders(self) -> None:
        self.assertNotEqual(image.digest("a", "bc"), image.digest("ab", "c"))
        self.assertEqual(image.digest("a", b"b"), image.digest(b"a", "b"))
        keys = {image.image_key(suite, headers)
                for suite in image.SUITES for headers in (False, True)}
        self.assertEqual(len(keys), 2 * len(image.SUITES))

    def test_packages_have_the_names_of_their_release(self) -> None:
        names = {"trixie": "librdmacm1t64", "forky": "librdmacm1t64", "bookworm": "librdmacm1"}
        for suite, name in names.items():
            self.assertEqual([one for one in image.packages(suite) if "librdmacm1" in one], [name])
            self.assertEqual("systemd" in image.packages(suite), suite == "bookworm")

    def test_a_release_without_rdma_gets_nothing_of_ours(self) -> None:
        guest = image.Image("bookworm", "k", Path("r"), Path("v"), Path("i"), "6.1.0")
        self.assertEqual(ours.guest_initrd(guest), Path("i"))
        with self.assertRaisesRegex(LabError, "bookworm's kernel knows MANA for Ethernet alone"):
            ours.guest_initrd(guest, driver="ours")

    def test_entries_of_a_suite_are_not_those_of_its_backports(self) -> None:
        with tempfile.TemporaryDirectory() as temp, \
                mock.patch.dict(os.environ, {"OPENMANA_CACHE": temp}):
            for name in ("guest-trixie", "guest-trixie-backports"):
                (Path(temp) / f"{name}-{image.digest(name)}").mkdir()
            self.assertEqual([path.name for path in image.entries("guest-trixie")],
                             [f"guest-trixie-{image.digest('guest-trixie')}"])

    def test_package_list_without_comments(self) -> None:
        self.assertEqual(image.package_list("# c\na\n\nb # why\n"), ["a", "b"])

    def test_cpio_is_read_by_cpio_rules(self) -> None:
        data = image.cpio([("init", b"abc", 0o755)])
        self.assertEqual(len(data) % 512, 0)
        at = data.index(b"init\0") - 110
        self.assertEqual(data[at:at + 6], b"070701")
        self.assertEqual(int(data[at + 54:at + 62], 16), 3)
        body = (at + 110 + 5 + 3) // 4 * 4
        self.assertEqual(data[body:body + 3], b"abc")
        self.assertIn(b"TRAILER!!!\0", data)

    def test_modules_come_with_what_they_need(self) -> None:
        deps = {"kernel/a/x.ko.xz": ["kernel/b/y.ko.xz"], "kernel/b/y.ko.xz": [],
                "kernel/c/z.ko.xz": []}
        self.assertEqual(stage.wanted_modules(deps, ["a/"]),
                         {"kernel/a/x.ko.xz", "kernel/b/y.ko.xz"})

    def test_unknown_guest_is_refused(self) -> None:
        with self.assertRaisesRegex(LabError, "unknown guest 'sid'"):
            image.get_image("sid")

    def test_entry_appears_only_when_complete(self) -> None:
        with tempfile.TemporaryDirectory() as temp:
            final = Path(temp) / "entry"
            with self.assertRaises(ValueError), image.new_entry(final) as part:
                (part / "half").write_text("x")
                raise ValueError
            self.assertEqual(list(Path(temp).iterdir()), [])
            with image.new_entry(final) as part:
                (part / "whole").write_text("x")
            self.assertEqual((final / "whole").read_text(), "x")


class PackageTest(unittest.TestCase):
    """What the packages say of themselves."""

    def test_version_is_the_same_everywhere(self) -> None:
        project = re.search(r"project\(OpenMANA VERSION ([\d.]+)",
                            (ROOT / "CMakeLists.txt").read_text())
        assert project is not None
        changelog = (ROOT / "debian/changelog").read_text()
        self.assertRegex(changelog, rf"^openmana \({re.escape(project[1])}\) ")
        if (ROOT / "kernel/VERSION").exists():
            self.assertEqual((ROOT / "kernel/VERSION").read_text().strip(), project[1])
            self.assertIn(f'PACKAGE_VERSION="{project[1]}"',
                          (ROOT / "kernel/dkms.conf").read_text())


class ProbeTest(unittest.TestCase):
    """What the driver's probe finds in the headers of a kernel; those here have a line or two."""

    def setUp(self) -> None:
        temp = tempfile.TemporaryDirectory()
        self.addCleanup(temp.cleanup)
        self.base = Path(temp.name)
        for name, text in (("include/rdma/ib_verbs.h",
                            "struct ib_device_ops {\n\tint a;\n};\n"),
                           ("include/rdma/ib_umem.h", ""), ("include/linux/module.h", ""),
                           ("include/rdma/rdma_counter.h", ""),
                           ("include/rdma/uverbs_ioctl.h", ""),
                           ("include/linux/slab.h", ""),
                           ("include/net/mana/mana.h", '#include "gdma.h"\n'),
                           ("include/net/mana/gdma.h",
                            "struct gdma_dev {\n\tint a;\n};\n"
                            "struct gdma_context {\n\tstruct gdma_dev\t\tmana_ib;\n};\n"),
                           ("Module.symvers", "")):
            (self.base / name).parent.mkdir(parents=True, exist_ok=True)
            (self.base / name).write_text(text)

    def probe(self, *flags: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([ROOT / "kernel/compat-probe.sh", self.base / "Module.symvers", "gcc",
                               "-nostdinc", f"-I{self.base}/include", *flags], check=False,
                              text=True, capture_output=True)

    def test_oldest_kernel_has_nothing_newer(self) -> None:
        answer = self.probe()
        self.assertEqual((answer.returncode, answer.stdout, answer.stderr), (0, "", ""))

    def test_what_6_12_has_and_6_8_has_not_is_found(self) -> None:
        (self.base / "include/linux/slab.h").write_text("#define kvcalloc_node(...) 0\n")
        (self.base / "Module.symvers").write_text(
            "0x0\tib_device_get_netdev\tdrivers/infiniband/core/ib_core\tEXPORT_SYMBOL\t\n")
        self.assertEqual(self.probe().stdout.split(),
                         ["-DHAVE_KVCALLOC_NODE", "-DHAVE_DEVICE_GET_NETDEV"])

    def test_operation_counts_with_the_prototype_that_compat_h_expects(self) -> None:
        for last, found in (("struct ib_udata *", ""),
                            ("struct uverbs_attr_bundle *attrs", " -DHAVE_CREATE_CQ_BUNDLE")):
            (self.base / "include/rdma/ib_verbs.h").write_text(
                "struct ib_cq;\nstruct ib_cq_init_attr;\nstruct ib_udata;\n"
                "struct uverbs_attr_bundle;\nstruct ib_device_ops {\n\tint (*create_cq)"
                f"(struct ib_cq *cq, const struct ib_cq_init_attr *attr,\n{last});\n}};\n")
            self.assertEqual(self.probe().stdout, found)

    def test_headers_that_do_not_compile_are_refused_in_one_line(self) -> None:
        (self.base / "include/rdma/ib_umem.h").write_text("struct ib_umem {\n\tnothing;\n};\n")
        answer = self.probe()
        self.assertEqual((answer.returncode, answer.stdout), (1, ""))
        self.assertRegex(answer.stderr,
                         r"^mana_ib: the kernel's headers do not compile: .*ib_umem.h:2:.*\n$")

    def test_kernel_before_the_oldest_is_refused_in_one_line(self) -> None:
        (self.base / "include/net/mana/gdma.h").write_text(
            "struct gdma_dev;\nstruct gdma_context {\n\tint a;\n};\n")
        answer = self.probe()
        self.assertEqual((answer.returncode, answer.stdout), (1, ""))
        self.assertRegex(answer.stderr, r"^mana_ib: .* is older than the oldest kernel .*\n$")

    def test_kernel_of_32_bits_is_refused_in_one_line(self) -> None:
        answer = self.probe("-m32")
        self.assertEqual((answer.returncode, answer.stdout), (1, ""))
        self.assertEqual(answer.stderr, "mana_ib: the kernel has to be one of 64 bits\n")

    def test_oldest_kernel_is_that_of_the_document(self) -> None:
        oldest = re.search(r'^BUILD_EXCLUSIVE_KERNEL_MIN="(.*)"$',
                           (ROOT / "kernel/dkms.conf").read_text(), re.M)
        assert oldest is not None
        document = (ROOT / "docs/kernel.md").read_text()
        self.assertIn(f"one source for kernels {oldest[1]} to ", document)
        self.assertIn(f"A kernel before {oldest[1]} is refused", document)


class OursTest(unittest.TestCase):
    """Our driver and provider, from sources to what a guest gets."""

    def setUp(self) -> None:
        temp = tempfile.TemporaryDirectory()
        self.addCleanup(temp.cleanup)
        self.base = Path(temp.name)
        for name in ("kernel/main.c", "include/mana/gdma.h"):
            (self.base / name).parent.mkdir(parents=True, exist_ok=True)
            (self.base / name).write_text(name)
        patch = mock.patch.object(ours, "ROOT", self.base)
        patch.start()
        self.addCleanup(patch.stop)

    def test_key_changes_with_sources_and_not_with_products(self) -> None:
        before = ours.sources_digest("kernel", "include")
        for name in ("kernel/main.o", "kernel/mana_ib.ko", "kernel/.main.o.cmd", "kernel/a.mod.c"):
            (self.base / name).write_text("a product")
        self.assertEqual(ours.sources_digest("kernel", "include"), before)
        (self.base / "include/mana/gdma.h").write_text("changed")
        after = ours.sources_digest("kernel", "include")
        self.assertNotEqual(after, before)
        (self.base / "include/mana/gdma.h").rename(self.base / "include/mana/hwc.h")
        self.assertNotEqual(ours.sources_digest("kernel", "include"), after)

    def test_sources_are_copied_without_products(self) -> None:
        (self.base / "kernel/main.o").write_text("a product")
        ours.copy_sources(self.base / "copy", "kernel", "include")
        copied = sorted(str(path.relative_to(self.base / "copy"))
                        for path in (self.base / "copy").rglob("*") if path.is_file())
        self.assertEqual(copied, ["include/mana/gdma.h", "kernel/main.c"])

    def test_a_source_tree_without_our_side_is_named(self) -> None:
        with self.assertRaisesRegex(LabError, "there is no providers/"):
            ours.sources_digest("providers")

    def test_a_failed_build_says_its_first_error(self) -> None:
        log = self.base / "log"
        log.write_text("CC cq.c\nmain.c:3:1: error: expected ';'\nmake: *** [all] Error 2\n")
        with self.assertRaisesRegex(LabError, r"building it failed: main.c:3:1: error: .*; log: "):
            with building.explained("it", log):
                raise LabError("make failed (status 2): make: *** [all] Error 2", log)

    def test_archive_keeps_directories_links_and_modes(self) -> None:
        tree = self.base / "tree"
        (tree / "usr/bin").mkdir(parents=True)
        (tree / "usr/bin/tool").write_text("text")
        (tree / "usr/bin/tool").chmod(0o750)
        (tree / "usr/link").symlink_to("bin/tool")
        self.assertEqual(building.tree_files(tree), [
            ("extras/usr", b"", 0o040755), ("extras/usr/bin", b"", 0o040755),
            ("extras/usr/bin/tool", b"text", 0o100755),
            ("extras/usr/link", b"bin/tool", 0o120777)])

    def test_module_of_another_kernel_is_refused(self) -> None:
        module = self.base / "mana_ib.ko"
        module.write_bytes(b"\0license=GPL\0vermagic=6.8.0 SMP\0")
        kernel = image.Image("trixie", "k", *[Path("/none")] * 3, version="6.12.1")
        with self.assertRaisesRegex(LabError, "was built for 6.8.0, the guest runs 6.12.1"):
            ours._check_module(module, kernel)

    def test_stock_guests_need_no_build(self) -> None:
        kernel = image.Image("trixie", "k", *[Path("/none")] * 3, version="6.12.1")
        self.assertEqual(ours.guest_initrd(kernel), Path("/none"))
        with self.assertRaisesRegex(LabError, "the driver is stock or ours, not 'mine'"):
            ours.guest_initrd(kernel, "mine")

    @unittest.skipUnless(subprocess.run([*roots.namespace(), "true"], check=False,
                                        capture_output=True).returncode == 0,
                         "this user may not have namespaces")
    def test_what_runs_in_a_root_changes_nothing_but_what_is_bound(self) -> None:
        for name in ("mnt", "bound"):
            (self.base / name).mkdir()
        words = [] if os.geteuid() == 0 else ["--unprivileged"]
        script = "touch /forgotten /bound/kept && test -d /proc/self && : >/dev/null"
        # /usr has all that a program needs, as a root too
        subprocess.run([*roots.namespace(), "/usr/bin/python3", "-B",
                        ROOT / "tools/lab/inroot.py", "/usr", self.base / "mnt", *words,
                        "--bind", self.base / "bound", "/bound", "--", "/bin/sh", "-c", script],
                       check=True, timeout=30)
        self.assertEqual(os.listdir(self.base / "bound"), ["kept"])
        self.assertEqual(os.listdir(self.base / "mnt"), [])
        self.assertFalse(Path("/usr/forgotten").exists())


class PatchTest(unittest.TestCase):
    """perftest's patches, for the lab's version and for upstream: fit for sending."""

    SERIES = ("perftest", "perftest-upstream")

    def test_each_is_signed_off_by_its_author_and_says_what_it_is_for(self) -> None:
        for path in (path for name in self.SERIES for path in (ours.PATCHES / name).iterdir()):
            with self.subTest(path=path.name):
                mail = email.message_from_bytes(path.read_bytes())
                subject = " ".join(mail["Subject"].split())
                self.assertRegex(subject, r"^\[PATCH [12]/2\] Perftest: [A-Z].*[^.]$")
                message = mail.get_payload().partition("\n---\n")[0]
                author = " ".join(mail["From"].split())
                self.assertEqual(message.splitlines()[-1], f"Signed-off-by: {author}")
                self.assertLessEqual(max(map(len, message.splitlines()[:-1])), 75)

    def test_both_series_say_the_same(self) -> None:
        texts = []
        for name in self.SERIES:
            mails = [email.message_from_bytes(path.read_bytes())
                     for path in sorted((ours.PATCHES / name).iterdir())]
            texts.append([(mail["Subject"], mail.get_payload().partition("\n---\n")[0])
                          for mail in mails])
        self.assertEqual(texts[0], texts[1])


class DebugKernelTest(unittest.TestCase):
    """The kernel with checkers: what is asked for, what it is made from, what its guests get."""

    def kernel(self, version: str = "6.12.107+deb13-amd64") -> image.Image:
        return image.Image("trixie", "k", *[Path("/none")] * 3, version=version)

    def test_source_package_is_that_of_the_images_kernel(self) -> None:
        self.assertEqual(debug_kernel.source_package(self.kernel()), "linux-source-6.12")
        self.assertEqual(debug_kernel.source_package(self.kernel("7.2.12+deb14-amd64")),
                         "linux-source-7.2")
        with self.assertRaisesRegex(LabError, "strange version next"):
            debug_kernel.source_package(self.kernel("next"))

    def test_what_the_kernel_lacks_is_named(self) -> None:
        config = "CONFIG_KASAN=y\nCONFIG_RDS=m\n# CONFIG_VT is not set\nCONFIG_NR_CPUS=8\n"
        self.assertEqual(debug_kernel.missing_settings(config + "# c\nCONFIG_VT=n\n", config), [])
        self.assertEqual(debug_kernel.missing_settings(
            "CONFIG_KASAN=y\nCONFIG_UBSAN=y\nCONFIG_RDS=y\nCONFIG_NR_CPUS=n\n", config),
            ["CONFIG_UBSAN=y", "CONFIG_RDS=y", "CONFIG_NR_CPUS=n"])

    def test_configurations_name_the_checkers_and_nothing_twice(self) -> None:
        for suite in image.SUITES:
            names = re.findall(r"^(CONFIG_\w+)=", debug_kernel.settings(suite), re.M)
            self.assertEqual(len(names), len(set(names)))
            self.assertLessEqual({"CONFIG_KASAN", "CONFIG_UBSAN", "CONFIG_PROVE_LOCKING",
                                  "CONFIG_DEBUG_ATOMIC_SLEEP", "CONFIG_DEBUG_KMEMLEAK",
                                  "CONFIG_MICROSOFT_MANA"}, set(names))

    def test_kcsan_has_a_kernel_of_its_own(self) -> None:
        for suite in image.SUITES:
            lines = [line for line in debug_kernel.settings(suite, "kcsan").splitlines()
                     if line.startswith("CONFIG_")]
            names = [line.partition("=")[0] for line in lines]
            self.assertEqual(len(names), len(set(names)))
            self.assertLessEqual({"CONFIG_KCSAN=y", "CONFIG_KCSAN_STRICT=y", "CONFIG_KASAN=n",
                                  "CONFIG_MICROSOFT_MANA=m"}, set(lines))
        self.assertIn("CONFIG_KASAN=y\n", debug_kernel.settings("trixie"))
        configure, build = debug_kernel.scripts("kcsan")
        self.assertIn("drivers/infiniband/%", configure)
        self.assertIn("-openmana-kcsan", build)
        self.assertNotIn("KCSAN", "".join(debug_kernel.scripts("debug")))
        self.assertEqual(cli.make_parser().parse_args(["kernel", "--variant", "kcsan"]).variant,
                         "kcsan")

    def test_a_module_that_kcsan_cannot_see_is_refused(self) -> None:
        with tempfile.TemporaryDirectory() as temp:
            (Path(temp) / "config").write_text("CONFIG_KCSAN=y\n")
            guest = replace(self.kernel("6.12.1-k"), kernel=Path(temp) / "vmlinuz",
                            modules=Path(temp))
            module = Path(temp) / "mana_ib.ko"
            module.write_bytes(b"vermagic=6.12.1-k \0__tsan_read8\0")
            ours._check_module(module, guest)
            module.write_bytes(b"vermagic=6.12.1-k \0")
            with self.assertRaisesRegex(LabError, "not instrumented"):
                ours._check_module(module, guest)
            ours._check_module(module, replace(guest, modules=None))

    def test_version_of_the_source_is_part_of_the_key(self) -> None:
        with tempfile.TemporaryDirectory() as temp:
            root = roots.Root("trixie", "k", Path(temp), "")
            status = root.tree / "var/lib/dpkg/status"
            status.parent.mkdir(parents=True)
            status.write_text("Package: linux-source-6.1\nVersion: 1\n\n"
                              "Package: linux-source-6.12\nStatus: x\nVersion: 6.12.107-1\n\n")
            self.assertEqual(debug_kernel._source_version(root, "linux-source-6.12"),
                             "6.12.107-1")
            with self.assertRaisesRegex(LabError, "has no linux-source-7.2"):
                debug_kernel._source_version(root, "linux-source-7.2")

    def test_a_build_that_lacks_a_checker_fails_and_leaves_nothing(self) -> None:
        with tempfile.TemporaryDirectory() as temp, \
                mock.patch.dict(os.environ, {"OPENMANA_CACHE": temp}), \
                mock.patch.object(debug_kernel, "_root", return_value=roots.Root(
                    "trixie", "k", Path(temp), "")), \
                mock.patch.object(debug_kernel, "_source_version", return_value="1"), \
                mock.patch.object(roots.Root, "run") as run:
            def configure(argv: list[str], log: Path, what: str, binds: dict[Path, str]) -> None:
                self.assertTrue(argv and log and what)
                (next(iter(binds)) / "linux").mkdir()
                config = debug_kernel.settings("trixie").replace("CONFIG_KASAN=y\n", "")
                (next(iter(binds)) / "linux" / ".config").write_text(config)
            run.side_effect = configure
            with self.assertRaisesRegex(LabError, "linux-source-6.12 1 cannot have CONFIG_KASAN=y"):
                debug_kernel.build_kernel(self.kernel())
            self.assertEqual(run.call_count, 1)
            self.assertEqual([path.name for path in Path(temp).glob("kernel-*")], [])

    def test_guests_get_its_modules_and_nothing_to_load_early(self) -> None:
        with tempfile.TemporaryDirectory() as temp, \
                mock.patch.dict(os.environ, {"OPENMANA_CACHE": temp}):
            base = Path(temp) / "kernel-trixie-x"
            (base / "modules/6.12.1-d/kernel").mkdir(parents=True)
            (base / "modules/6.12.1-d/kernel/a.ko").write_bytes(b"module")
            (base / "version").write_text("6.12.1-d\n")
            (Path(temp) / "first").write_bytes(b"FIRST")
            stock = image.Image("trixie", "k", Path("/root"), Path("/vmlinuz"),
                                Path(temp) / "first", "6.12.107")
            with mock.patch.object(debug_kernel, "get_image", return_value=stock), \
                    mock.patch.object(debug_kernel, "build_kernel", return_value=base):
                made = debug_kernel.debug_image("trixie")
            self.assertEqual((made.version, made.kernel, made.root),
                             ("6.12.1-d", base / "vmlinuz", Path("/root")))
            data = made.initrd.read_bytes()
            self.assertTrue(data.startswith(b"FIRST"))
            self.assertIn(b"extras/usr/lib/modules/6.12.1-d/kernel/a.ko\0", data)
            self.assertIn(b"modules\0", data)
            self.assertIn("kasan", made.append)

    def test_its_guests_have_more_time_and_memory(self) -> None:
        args = cli.make_parser().parse_args(["up", "--kernel", "debug"])
        spec = cli.guest_specs(args)[0]
        self.assertGreater(spec.memory, GuestSpec().memory)
        self.assertGreater(spec.patience, GuestSpec().patience)
        args = cli.make_parser().parse_args(["up", "--kernel", "debug", "--memory", "2000"])
        self.assertEqual(cli.guest_specs(args)[0].memory, 2000)

    def test_data_races_take_two_cpus(self) -> None:
        for words, cpus in ((["up"], 1), (["up", "--kernel", "kcsan"], 2),
                            (["up", "--kernel", "kcsan", "--cpus", "4"], 4)):
            args = cli.make_parser().parse_args(words)
            self.assertEqual(cli.guest_specs(args)[0].cpus, cpus)


class QemuTest(unittest.TestCase):
    """Which QEMU, and how it is called."""

    def test_version(self) -> None:
        self.assertEqual(qemu.parse_version("QEMU emulator version 11.1.0 (Debian 1:11)"), (11, 1))
        self.assertIsNone(qemu.parse_version("bash 5.2"))

    def fake(self, folder: str, text: str) -> str:
        path = Path(folder) / "qemu"
        path.write_text(f"#!/bin/sh\necho '{text}'\n")
        path.chmod(0o755)
        return str(path)

    def test_too_old_is_one_clear_line(self) -> None:
        with tempfile.TemporaryDirectory() as temp:
            with self.assertRaisesRegex(LabError, r"is version 10\.0; .* needs 10\.1 or newer"):
                qemu.probe((self.fake(temp, "QEMU emulator version 10.0.2"),))

    def test_without_the_device_it_says_so(self) -> None:
        with tempfile.TemporaryDirectory() as temp:
            with self.assertRaisesRegex(LabError, "built without vfio-user-pci"):
                qemu.probe((self.fake(temp, "QEMU emulator version 11.0.2"),))

    def test_what_is_no_qemu_is_named_in_one_line(self) -> None:
        with tempfile.TemporaryDirectory() as temp:
            with self.assertRaisesRegex(LabError, "qemu is no QEMU: 'true 9.1'$"):
                qemu.probe((self.fake(temp, "true 9.1\nCopyright"),))
        with self.assertRaisesRegex(LabError, "cannot run QEMU /no/such: No such file or dir"):
            qemu.probe(("/no/such",))

    def test_console_and_memory_are_what_the_lab_relies_on(self) -> None:
        here = Path("x")
        machine = qemu.Machine("g0", here, here, here, here, here, nics=(Path("n.sock"),))
        argv = qemu.command_line(qemu.Qemu(("qemu",), "11.1"), machine)
        self.assertIn("memory-backend-memfd,id=ram,size=1024M,share=on", argv)
        device = next(json.loads(arg) for arg in argv if "vfio-user-pci" in arg)
        self.assertEqual(device["socket"], {"type": "unix", "path": "n.sock"})
        self.assertNotIn("-no-reboot", argv)
        self.assertFalse([arg for arg in argv if "drive=disk" in arg])
        self.assertIn("panic=-1", qemu.kernel_command_line(machine))

    def test_a_disk_comes_behind_the_root(self) -> None:
        here = Path("x")
        machine = qemu.Machine("g0", here, here, here, here, here, disk=Path("g0.disk"))
        argv = qemu.command_line(qemu.Qemu(("qemu",), "11.1"), machine)
        drives = [arg for arg in argv if arg.startswith("virtio-blk-pci")]
        self.assertEqual(drives, ["virtio-blk-pci,drive=root,addr=3",
                                  "virtio-blk-pci,drive=disk,addr=5"])
        disk = next(json.loads(arg) for arg in argv if '"disk"' in arg)
        self.assertEqual(disk["file"]["filename"], "g0.disk")
        self.assertNotIn("read-only", disk)

    def test_fatal_messages(self) -> None:
        for line in ("Kernel panic - not syncing: x", "Oops: 0002 [#1]",
                     "BUG: kernel NULL pointer dereference", "kernel BUG at fs/x.c:1!"):
            self.assertTrue(FATAL.search(line), line)
        for line in ("watchdog: BUG: soft lockup - CPU#0", "BUG: workqueue lockup - pool",
                     "rcu: INFO: rcu_sched self-detected stall",
                     "BUG: KASAN: slab-use-after-free in f+0x1/0x2 [m]",
                     "BUG: sleeping function called from invalid context at mm/x.c:1"):
            self.assertFalse(FATAL.search(line), line)


class ChannelTest(unittest.TestCase):
    """The host's side against a stand-in for the agent."""

    def setUp(self) -> None:
        ours, self.agent = socket.socketpair()
        self.agent.settimeout(10)
        self.channel = channel.Channel(ours, "g0", "the.console")
        self.addCleanup(self.agent.close)
        self.addCleanup(self.channel.close)
        self.decoder = channel.Decoder()
        self.frames: list[tuple[int, int, bytes]] = []

    def hello(self, boot: str) -> None:
        self.agent.sendall(channel.encode(channel.HELLO, 0, json.dumps({"boot": boot}).encode()))

    def receive(self, kind: int) -> tuple[int, bytes]:
        while True:
            while self.frames:
                got, ident, payload = self.frames.pop(0)
                if got == kind:
                    return ident, payload
            self.frames += self.decoder.feed(self.agent.recv(65536))

    def test_command_with_output_and_status(self) -> None:
        command = self.channel.start(["prog", "arg"], env={"A": "b"})
        ident, payload = self.receive(channel.START)
        self.assertEqual(json.loads(payload)["argv"], ["prog", "arg"])
        self.agent.sendall(channel.encode(channel.STDOUT, ident, b"out")
                           + channel.encode(channel.STDERR, ident, b"err")
                           + channel.encode(channel.EXIT, ident, struct.pack("<i", 3)))
        self.assertEqual(command.wait(10), 3)
        self.assertEqual((command.stdout, command.stderr), ("out", "err"))

    def test_two_commands_do_not_mix(self) -> None:
        one, two = self.channel.start(["a"]), self.channel.start(["b"])
        first, _ = self.receive(channel.START)
        second, _ = self.receive(channel.START)
        self.agent.sendall(channel.encode(channel.STDOUT, second, b"2")
                           + channel.encode(channel.STDOUT, first, b"1")
                           + channel.encode(channel.EXIT, second, struct.pack("<i", 0))
                           + channel.encode(channel.EXIT, first, struct.pack("<i", 0)))
        self.assertEqual((one.wait(10), two.wait(10)), (0, 0))
        self.assertEqual((one.stdout, two.stdout), ("1", "2"))

    def test_timeout_kills_and_says_so(self) -> None:
        command = self.channel.start(["sleep", "9"])

        def agent() -> None:
            ident, payload = self.receive(channel.KILL)
            status = -struct.unpack("<i", payload)[0]
            self.agent.sendall(channel.encode(channel.EXIT, ident, struct.pack("<i", status)))

        thread = threading.Thread(target=agent)
        thread.start()
        with self.assertRaisesRegex(CommandTimeout, "'sleep 9' did not end within 0 s"):
            command.wait(0.2)
        thread.join()
        self.assertEqual(command.status, -9)

    def test_patience_makes_waits_longer(self) -> None:
        self.channel.patience = 20.0
        command = self.channel.start(["true"])
        ident, _ = self.receive(channel.START)

        def agent() -> None:
            time.sleep(0.3)
            self.agent.sendall(channel.encode(channel.EXIT, ident, struct.pack("<i", 0)))

        thread = threading.Thread(target=agent)
        thread.start()
        self.assertEqual(command.wait(0.1), 0)
        thread.join()

    def test_silent_guest_hangs(self) -> None:
        command = self.channel.start(["sleep", "9"])
        with mock.patch.object(channel, "KILL_GRACE", 0.2):
            with self.assertRaisesRegex(GuestTimeout, "does not answer; it hangs; log: the.cons"):
                command.wait(0.1)

    def test_closed_channel_ends_waits_at_once(self) -> None:
        command = self.channel.start(["sleep", "9"])
        begin = time.monotonic()
        self.agent.close()
        with self.assertRaisesRegex(GuestDied, "channel closed"):
            command.wait(30)
        with self.assertRaises(GuestDied):
            self.channel.start(["true"])
        self.assertLess(time.monotonic() - begin, 5)

    def test_reboot_ends_commands_of_the_old_boot(self) -> None:
        self.hello("one")
        self.channel.wait_boot(10)
        self.receive(channel.ACK)
        command = self.channel.start(["sleep", "9"])
        self.hello("two")
        self.channel.wait_boot(10, "one")
        with self.assertRaisesRegex(GuestDied, "rebooted"):
            command.wait(10)
        self.channel.start(["true"])

    def test_no_hello_in_time(self) -> None:
        with self.assertRaisesRegex(GuestTimeout, "did not come up within 0 s"):
            self.channel.wait_boot(0.1)

    def test_decoder_finds_its_way_after_nonsense(self) -> None:
        decoder = channel.Decoder()
        good = channel.encode(channel.EXIT, 7, struct.pack("<i", 0))
        bad_length = channel.HEADER.pack(channel.MAGIC, 1, 1, -5)
        data = b"OMLnoise" + bad_length + b"OM" + good
        frames = []
        for byte in data:
            frames += decoder.feed(bytes([byte]))
        self.assertEqual(frames, [(channel.EXIT, 7, struct.pack("<i", 0))])

    def test_output_wanted_never_comes(self) -> None:
        command = self.channel.start(["server"])
        ident, _ = self.receive(channel.START)
        self.agent.sendall(channel.encode(channel.STDERR, ident, b"no device")
                           + channel.encode(channel.EXIT, ident, struct.pack("<i", 1)))
        with self.assertRaisesRegex(LabError, "status 1 before it wrote 'ready': no device"):
            command.wait_output("ready", 10)


class SecondStartTest(unittest.TestCase):
    """Of a guest whose kernel panics while it boots."""

    OOPS = "[ 3.69] Oops: int3: 0000 [#1] SMP\n[ 3.70] Call Trace:\n[ 3.71] Modules linked in:"

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.guest = Guest("g0", 0, GuestSpec(), mock.Mock(), mock.Mock(), [], [],
                           Path(folder.name))
        self.lab = Lab([self.guest.spec])
        self.replaced: list[int] = []

    def boot(self, console: str, panic: str | None) -> None:
        """The guest dies at its boot with that on its console."""
        self.guest.console_log.write_text(console)
        self.guest._panic = panic
        died = GuestDied("g0: the guest panicked")
        with mock.patch.object(self.guest, "wait_ready", side_effect=died), \
                mock.patch.object(self.lab, "replace", self.replaced.append), \
                mock.patch.object(session, "say"):
            self.lab._bring_up(self.guest)

    def test_a_kernel_that_tcg_let_run_into_its_own_breakpoint_has_one(self) -> None:
        self.boot(self.OOPS + "\n[ 3.72] Kernel panic", "Kernel panic")
        self.assertEqual(self.replaced, [0])
        kept = self.guest.console_log.with_suffix(".console-before")
        self.assertIn("Oops: int3", kept.read_text())

    def test_any_other_has_none(self) -> None:
        for console, panic in ((self.OOPS + " mana_ib mana\n", "Kernel panic"),
                               (self.OOPS.replace("int3", "0000") + "\n", "Oops: 0000"),
                               (self.OOPS + "\n", None)):
            with self.assertRaises(GuestDied):
                self.boot(console, panic)
        self.assertEqual(self.replaced, [])


class HostTest(unittest.TestCase):
    """Refusals: one clear line each."""

    def test_missing_package_is_named(self) -> None:
        with mock.patch.object(os, "geteuid", return_value=1000):
            with self.assertRaisesRegex(LabError, "missing packages: some-package; install"):
                host.ensure_packages({"no-such-program-at-all": "some-package"})

    def test_a_steady_counter_s_frequency_is_known(self) -> None:
        cpus = "flags\t\t: fpu tsc constant_tsc nonstop_tsc\ncpu MHz\t\t: 2596.150\n"
        self.assertEqual(host.tsc_khz(cpus), 2596150)
        for other in (cpus.replace(" nonstop_tsc", ""), cpus.replace("fpu", "aperfmperf"),
                      cpus.replace("MHz", "GHz"), ""):
            self.assertIsNone(host.tsc_khz(other))

    def test_packages_for_images_are_named_before_the_build(self) -> None:
        with tempfile.TemporaryDirectory() as temp, \
                mock.patch.dict(os.environ, {"OPENMANA_CACHE": temp}), \
                mock.patch.dict(host.FOR_USERS, {"no-such-program-at-all": "some-package"}), \
                mock.patch.object(host, "build_packages", return_value=["base-files"]), \
                mock.patch.object(os, "geteuid", return_value=1000):
            with self.assertRaisesRegex(LabError, "missing packages: .*some-package"):
                host.ensure_build_packages()
            (Path(temp) / "guest-trixie-0").mkdir()  # an image is there, none needs to be made
            host.ensure_build_packages()

    def test_no_disk_space(self) -> None:
        with self.assertRaisesRegex(LabError, "not enough disk space for images: .* are needed"):
            host.check_space(Path("/"), 1 << 62, "images")

    def test_chroot_without_a_mount_of_its_own_is_refused_before_the_build(self) -> None:
        proc_alone = "36 29 0:20 / /proc rw,nosuid - proc proc rw\n"
        with self.assertRaisesRegex(LabError, "/ is no mount point, as in a plain chroot"):
            host.check_namespaces(proc_alone)
        host.check_namespaces("29 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n" + proc_alone)
        host.check_namespaces()

    def test_failing_program_names_its_log(self) -> None:
        with tempfile.TemporaryDirectory() as temp:
            log = Path(temp) / "a.log"
            with self.assertRaisesRegex(LabError, r"the step failed \(status 3\): why; log: .*log"):
                proc.run_logged(["sh", "-c", "echo why; exit 3"], log, "the step")
            with self.assertRaisesRegex(LabError, "no such program"):
                proc.run_logged(["no-such-program-at-all"], log, "the step")

    def test_steps_find_the_programs_of_the_system(self) -> None:
        with tempfile.TemporaryDirectory() as temp, \
                mock.patch.dict(os.environ, {"PATH": "/usr/bin:/bin"}):
            log = Path(temp) / "a.log"
            proc.run_logged(["sh", "-c", "command -v chroot && command -v mke2fs"], log, "looking")

    def test_child_dies_with_its_parent(self) -> None:
        code = ("import sys, os; sys.path.insert(0, sys.argv[1]); from lab import proc; "
                "child = proc.spawn(['sleep', '300']); print(child.pid, flush=True); "
                "os.kill(os.getpid(), 9)")
        done = subprocess.run(["/usr/bin/python3", "-B", "-c", code, str(ROOT / "tools")],
                              capture_output=True, text=True, timeout=30, check=False)
        child = int(done.stdout)
        deadline = time.monotonic() + 10
        while is_running(child) and time.monotonic() < deadline:
            time.sleep(0.02)
        self.assertFalse(is_running(child))

    def test_stale_run_directory_is_swept_and_live_one_is_not(self) -> None:
        with tempfile.TemporaryDirectory() as temp, \
                mock.patch.dict(os.environ, {"XDG_RUNTIME_DIR": temp}):
            live = janitor.RunDirectory()
            base = live.path.parent
            self.assertEqual(live.path.stat().st_mode & 0o777, 0o700)
            stale = base / "run-stale"
            stale.mkdir()
            (stale / "lock").write_text("1\n")
            self.assertEqual(janitor.sweep(base), 1)
            self.assertTrue(live.path.exists())
            live.close()
            self.assertFalse(base.exists())

    def test_manad_that_fails_gives_its_own_words(self) -> None:
        with tempfile.TemporaryDirectory() as temp:
            binary = Path(temp) / "manad"
            binary.write_text("#!/bin/sh\necho 'socket a.sock is in use' >&2\nexit 1\n")
            binary.chmod(0o755)
            daemon = manad.Manad([], Path(temp) / "c", Path(temp) / "log", binary=binary)
            with self.assertRaisesRegex(LabError, "status 1: socket a.sock is in use; log: "):
                daemon.start()
            daemon.stop()


    def test_manad_that_its_filter_kills_is_said_so(self) -> None:
        with tempfile.TemporaryDirectory() as temp:
            binary = Path(temp) / "manad"
            binary.write_text("#!/bin/sh\necho ready\nkill -SYS $$\n")
            binary.chmod(0o755)
            daemon = manad.Manad([], Path(temp) / "c", Path(temp) / "log", binary=binary)
            daemon.start()
            deadline = time.monotonic() + 10
            while daemon.status is None and time.monotonic() < deadline:
                time.sleep(0.01)
            with self.assertRaisesRegex(LabError, "manad was killed by SIGSYS: it made a system "
                                                  "call that its filter does not let through"):
                daemon.check()
            daemon.stop()

    def test_how_manad_ended(self) -> None:
        self.assertEqual(rights.how_it_ended(3, 1), "manad ended with status 3")
        self.assertEqual(rights.how_it_ended(-11, 1),
                         "manad was killed by signal 11 (Segmentation fault)")


class InterruptTest(unittest.TestCase):
    """Ctrl-C while there is no guest yet: nothing stays behind. (With guests: test_guests.py.)"""

    def interrupted(self, tool: str, **env: str) -> None:
        """`manalab demo` is interrupted when it runs a tool, which would take long."""
        with tempfile.TemporaryDirectory() as temp:
            base = Path(temp)
            (base / "bin").mkdir()
            (base / "run").mkdir()
            program = base / "bin" / tool
            program.write_text(f"#!/bin/sh\necho $$ >{temp}/started\nsleep 600\n")
            program.chmod(0o755)
            process = subprocess.Popen(
                [str(MANALAB), "-q", "demo"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE, text=True, start_new_session=True,
                env={**os.environ, "PATH": f"{temp}/bin:{os.environ['PATH']}",
                     "OPENMANA_CACHE": f"{temp}/cache", "XDG_RUNTIME_DIR": f"{temp}/run", **env})
            deadline = time.monotonic() + 30
            while not (base / "started").exists():
                self.assertIsNone(process.poll(), "it ended without the tool")
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.02)
            pid = int((base / "started").read_text() or "0") or 1 << 30
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=60)
            self.assertEqual((process.returncode, said), (130, "manalab: interrupted\n"))
            self.assertFalse(is_running(pid))
            self.assertEqual(os.listdir(base / "run"), [])
            self.assertEqual(list((base / "cache").glob(".*.tmp-*")), [])

    def test_in_the_build(self) -> None:
        self.interrupted("cmake", OPENMANA_BUILD="")

    def test_in_the_making_of_an_image(self) -> None:
        with tempfile.TemporaryDirectory() as temp:
            for name in ("manad", "manactl"):
                (Path(temp) / name).write_text("#!/bin/sh\n")
                (Path(temp) / name).chmod(0o755)
            self.interrupted("mmdebstrap", OPENMANA_BUILD=temp)


def is_running(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class PrepareTest(unittest.TestCase):
    """Guests that are prepared while something else is built."""

    def setUp(self) -> None:
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.program = self.folder / "program"
        self.enterContext(mock.patch.object(prepare, "MANALAB", self.program))
        self.enterContext(mock.patch.object(host, "ensure_packages"))

    def test_block_ends_when_the_guests_are_ready(self) -> None:
        self.program.write_text(f"open({str(self.folder / 'ready')!r}, 'w').close()\n")
        with prepare.beside(["trixie"]):
            pass
        self.assertTrue((self.folder / "ready").exists())

    def test_failed_preparation_fails_the_block(self) -> None:
        self.program.write_text("raise SystemExit(3)\n")
        with self.assertRaisesRegex(LabError, "could not be prepared"), \
                prepare.beside(["trixie"]):
            pass

    def test_failed_build_ends_the_preparation(self) -> None:
        pid = self.folder / "pid"
        self.program.write_text("import os, time\n"
                                f"with open({str(pid)!r} + '-', 'w') as file:\n"
                                "    file.write(str(os.getpid()))\n"
                                f"os.rename({str(pid)!r} + '-', {str(pid)!r})\n"
                                "time.sleep(300)\n")
        with self.assertRaisesRegex(LabError, "compilers"), prepare.beside(["trixie"]):
            while not pid.exists():
                time.sleep(0.01)
            raise LabError("compilers do not like it")
        with self.assertRaises(ProcessLookupError):
            os.kill(int(pid.read_text()), 0)


class CommandLineTest(unittest.TestCase):
    """manalab as a program."""

    def refused(self, *args: str, words: str, env: dict[str, str] | None = None,
                status: int = 1) -> None:
        done = manalab("-q", *args, env=env)
        self.assertEqual(done.returncode, status, done.stderr)
        self.assertRegex(done.stderr.splitlines()[-1], words)
        self.assertNotIn("Traceback", done.stderr)

    def test_help_of_all_commands(self) -> None:
        listing = manalab("--help").stdout
        for command in ("demo", "up", "run", "shell", "down", "status", "test", "bench"):
            self.assertIn(command, listing)
            done = manalab(command, "--help")
            self.assertEqual(done.returncode, 0, command)
            self.assertIn("usage:", done.stdout)
        self.assertNotIn("_serve", listing)

    def test_senseless_options(self) -> None:
        self.refused("up", "--guest", "sid", words="unknown guest 'sid'")
        self.refused("up", "--guest", "trixie,mixed", words="'mixed' stands alone")
        self.refused("up", "--guest", "trixie,forky", "--guests", "3", words="does not fit")
        self.refused("up", "--guests", "0", words="0 is not positive", status=2)
        self.refused("up", "--memory", "much", words="'much' is no number", status=2)
        self.refused("up", "--no-such-option", words="unrecognized arguments", status=2)
        self.refused("up", "--name", "a/b", words="is no name for a lab")
        self.refused("run", "g0", words="which command")
        self.refused("up", "--virtio", "-1", words="cannot have -1 virtio NICs")
        self.refused("demo", "--guests", "1", words="needs two guests")
        self.refused("demo", "--mtu", "100", words="MTU 100 is out of range")
        self.refused("bench", "--mtu", "100", words="MTU 100 is out of range")
        self.refused("bench", "--beside-stock", words="needs --driver ours or --provider ours")
        self.refused("bench", "--output", "/dev/null", words="cannot create /dev/null: File exists")
        self.refused("test", "--label", "(", words=r"--label \(: ")
        self.refused("frobnicate", words="invalid choice", status=2)

    def test_lab_that_is_not_there(self) -> None:
        with tempfile.TemporaryDirectory() as temp:
            env = {"XDG_RUNTIME_DIR": temp}
            self.refused("run", "g0", "true", words="lab 'default' is not running", env=env)
            self.refused("down", words="lab 'default' is not running", env=env)
            done = manalab("status", env=env)
            self.assertEqual((done.returncode, done.stdout), (0, "no lab is running\n"))
            self.assertEqual(os.listdir(temp), [])

    def test_settings_that_lead_nowhere(self) -> None:
        self.refused("demo", words="manad is not in /none; build it",
                     env={"OPENMANA_BUILD": "/none"})
        self.refused("demo", words="cannot create the cache directory /dev/null/x: Not a dir",
                     env={"OPENMANA_CACHE": "/dev/null/x"})
        with mock.patch.dict(os.environ, {"OPENMANA_ACCEL": "warp"}):
            with self.assertRaisesRegex(LabError, "OPENMANA_ACCEL is 'warp'; it can be tcg or kvm"):
                kvm.choose_accel(mock.Mock(), mock.Mock())

    def test_kvm_is_tried_once_for_the_guests_of_all_suites(self) -> None:
        with tempfile.TemporaryDirectory() as temp, \
             mock.patch.object(kvm, "cache_dir", return_value=Path(temp)), \
             mock.patch.object(kvm.os, "access", return_value=True), \
             mock.patch.object(kvm, "_boots", return_value=False) as boots, \
             mock.patch.dict(os.environ, {"OPENMANA_ACCEL": ""}):
            for suite in ("trixie", "forky", "trixie"):
                image = mock.Mock(kernel=Path(temp) / suite / "vmlinuz")
                self.assertEqual(kvm.choose_accel(mock.Mock(), image), "tcg")
        self.assertEqual(boots.call_count, 1)

    def test_lab_refuses_impossible_guests(self) -> None:
        for spec, words in ((GuestSpec(cpus=0), "0 CPUs"), (GuestSpec(memory=10), "10 MiB"),
                            (GuestSpec(nics=99), "99 NICs"), (GuestSpec(virtio=-1), "-1 virtio"),
                            (GuestSpec(disk=-1), "disk of -1 MiB"),
                            (GuestSpec(headers=True, kernel="debug"), "can have its headers")):
            with self.assertRaisesRegex(LabError, words):
                Lab([spec])
        with self.assertRaisesRegex(LabError, "MTU 20 is out of range"):
            Lab(mtu=20)

    def test_choice_of_guests(self) -> None:
        parse = cli.make_parser().parse_args
        for text, suites in ((["--guest", "mixed", "--guests", "3"],
                              ["trixie", "forky", "trixie"]),
                             (["--guest", "forky"], ["forky", "forky"]),
                             (["--guest", "trixie-backports"], ["trixie-backports"] * 2),
                             (["--guest", "bookworm"], ["bookworm"] * 2),
                             (["--guest", "forky", "--guest", "trixie"], ["forky", "trixie"]),
                             ([], ["trixie", "trixie"])):
            specs = cli.guest_specs(parse(["up", *text]))
            self.assertEqual([spec.suite for spec in specs], suites)

    def test_choice_of_driver_and_provider(self) -> None:
        parse = cli.make_parser().parse_args
        specs = cli.guest_specs(parse(["up", "--driver", "ours", "--provider", "stock,ours"]))
        self.assertEqual([(spec.driver, spec.provider) for spec in specs],
                         [("ours", "stock"), ("ours", "ours")])
        self.refused("up", "--driver", "mine", words="the driver is stock or ours, not 'mine'")
        self.refused("up", "--provider", "ours,ours,stock", words="names 3 guests, there are 2")
        self.refused("up", "--ext", "maybe", words="invalid choice", status=2)


if __name__ == "__main__":
    unittest.main()
