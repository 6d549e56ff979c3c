"""Translations as LuCI reads them: an .lmo file from the text of a .po file.

First all translations, each padded to four bytes. Then the index: for each text the hash of the original, 1 (there is one
form of it), where its translation is and how long; sorted by the hash. Last, where the index begins. Numbers are 32 bits,
big-endian. Of what gettext can do, contexts and plurals are refused: nothing here needs them.
"""

import re
import struct


def messages(po):
    """Original and translation of each message that has one."""
    for block in re.split(r"\n\s*\n", po):
        texts, kind = {}, None
        for line in block.splitlines():
            if not line.strip() or line.startswith("#"):
                continue
            found = re.fullmatch(r'(?:(msgid|msgstr) )?"((?:[^"\\]|\\.)*)"\s*', line)
            if not found or not (found[1] or kind):
                raise ValueError(f"lmo: this line of a .po file is not understood: {line}")
            kind = found[1] or kind
            texts[kind] = texts.get(kind, "") + re.sub(r'\\(["\\])', r"\1", found[2])
        if texts.get("msgid") and texts.get("msgstr"):
            yield texts["msgid"], texts["msgstr"]


def hashed(text):
    """Paul Hsieh's hash, begun with the length (http://www.azillionmonkeys.com/qed/hash.html)."""
    data = text.encode()
    value = len(data)
    cut = lambda number: number & 0xFFFFFFFF
    pair = lambda at: data[at] | data[at + 1] << 8
    signed = lambda byte: byte - 256 if byte > 127 else byte
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        value = cut(value + pair(at))
        value = cut(value << 16) ^ cut(pair(at + 2) << 11) ^ value
        value = cut(value + (value >> 11))
    match len(data) - whole:
        case 3:
            value = cut(value + pair(whole))
            value ^= cut(value << 16)
            value ^= cut(signed(data[whole + 2]) << 18)
            value = cut(value + (value >> 11))
        case 2:
            value = cut(value + pair(whole))
            value ^= cut(value << 11)
            value = cut(value + (value >> 17))
        case 1:
            value = cut(value + signed(data[whole]))
            value ^= cut(value << 10)
            value = cut(value + (value >> 1))
    for left, right in ((3, 5), (4, 17), (25, 6)):
        value ^= cut(value << left)
        value = cut(value + (value >> right))
    return value


def compiled(po):
    texts, index = b"", []
    for original, translation in messages(po):
        if hashed(original) != hashed(translation):
            data = translation.encode()
            index.append((hashed(original), 1, len(texts), len(data)))
            texts += data + bytes(-len(data) % 4)
    return texts + b"".join(struct.pack(">4I", *entry) for entry in sorted(index)) + struct.pack(">I", len(texts))
