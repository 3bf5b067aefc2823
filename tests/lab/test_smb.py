# SPDX-License-Identifier: Apache-2.0
"""SMB Direct for guests: of which source it is built, and how its modules come and go."""

from __future__ import annotations

import subprocess
import sys
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from lab import extras, smb  # noqa: E402
from lab.errors import LabError  # noqa: E402
from lab.image import Image  # noqa: E402

HERE = Path(__file__).resolve().parent
IMAGE = Image("trixie", "guest-trixie-1", HERE, HERE, HERE, "6.12.117+deb13-amd64")


class SmbTest(unittest.TestCase):
    """Modules of the guest's kernel, and of no other."""

    def test_the_source_of_another_kernel_is_refused(self) -> None:
        with mock.patch.object(smb, "get_root"), mock.patch.object(extras, "archive"), \
                mock.patch.object(extras, "version", return_value="linux-source-6.12 6.12.118-1"):
            with self.assertRaisesRegex(LabError, "6.12.117.*another one: .*6.12.118"):
                smb.build_modules(IMAGE)

    def test_the_source_of_the_guests_kernel_is_built(self) -> None:
        built = mock.Mock(return_value=HERE)
        for version in ("6.12.117-1", "6.12.117-1~bpo12+1"):
            with mock.patch.object(smb, "get_root", return_value=mock.Mock(key="k")), \
                    mock.patch.object(extras, "archive"), mock.patch.object(smb, "built", built), \
                    mock.patch.object(extras, "version",
                                      return_value=f"linux-source-6.12 {version}"):
                self.assertEqual(smb.build_modules(IMAGE), HERE)
        keys = [call.args[1] for call in built.call_args_list]
        self.assertNotEqual(keys[0], keys[1])

    def test_shell_commands_are_right(self) -> None:
        for text in (smb.load("ksmbd"), smb.unload("cifs")):
            subprocess.run(["sh", "-nc", text], check=True)


if __name__ == "__main__":
    unittest.main()
