"""vmlinux.py BZIMAGE VMLINUX: unpacks a kernel here, where it takes a moment, so that no emulated processor has to at each boot.

The offsets are of the boot protocol's header (Documentation/arch/x86/boot.rst). A kernel packed otherwise than with xz is left as
it is: the emulator starts either.
"""

import lzma
import shutil
import struct
import sys
from pathlib import Path

SETUP_SECTORS, PAYLOAD_OFFSET = 0x1F1, 0x248
SECTOR = 512


def main() -> None:
    packed, unpacked = Path(sys.argv[1]), Path(sys.argv[2])
    image = packed.read_bytes()
    offset, length = struct.unpack_from("<II", image, PAYLOAD_OFFSET)
    start = (image[SETUP_SECTORS] + 1) * SECTOR + offset
    try:
        unpacked.write_bytes(lzma.LZMADecompressor().decompress(image[start : start + length]))
    except lzma.LZMAError:
        shutil.copy(packed, unpacked)


if __name__ == "__main__":
    main()
