"""Source files as editors and mail leave them: which text the bytes are, and what is no text.

A compiler reads UTF-8 (or any 8-bit text) whose lines end in LF or CR LF. What was saved otherwise
it blames on the first line ("invalid preprocessing directive #i").

Interface: as_source(data) -> (bytes, what it was, why it cannot be read); file_kind(data);
typographic(path, number, error).
"""

import codecs
import re
import unicodedata

from files import read_regular_file

# What files that are not text begin with.
MAGIC = ((b"PK\x03\x04", "a zip archive"), (b"PK\x05\x06", "an empty zip archive"),
         (b"\x1f\x8b", "a gzip file"), (b"BZh", "a bzip2 file"), (b"\xfd7zXZ\0", "an xz file"),
         (b"7z\xbc\xaf\x27\x1c", "a 7z archive"), (b"Rar!\x1a\x07", "a rar archive"),
         (b"\x28\xb5\x2f\xfd", "a zstd file"), (b"%PDF-", "a PDF"), (b"{\\rtf", "an RTF document"),
         (b"\xd0\xcf\x11\xe0", "an Office document"), (b"\x7fELF", "compiled code"),
         (b"bplist", "an Apple property list"), (b"\x89PNG", "a picture"))
TAR_AT, TAR = 257, b"ustar"
# Beginnings of files in wide characters: those of UTF-32 first, of which UTF-16's are a part.
MARKS = ((codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"),
         (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
PLAIN = {"“": '"', "”": '"', "„": '"', "«": '"', "»": '"',
         "‘": "'", "’": "'", "–": "-", "—": "-",
         "−": "-", "…": "..."}


def file_kind(data):
    """What a file is that begins so, in words; "" for what may be text."""
    if data[TAR_AT:TAR_AT + len(TAR)] == TAR:
        return "a tar archive"
    return next((kind for begin, kind in MAGIC if data.startswith(begin)), "")


def wide(data):
    """The encoding of a text in wide characters; "" where it is none. Without a mark of its own it
    is known by the zeros in every second byte, which C's characters have there."""
    for mark, name in MARKS:
        if data.startswith(mark):
            return name
    half = max(1, len(data) // 2)
    low, high = data[0::2].count(0) / half, data[1::2].count(0) / half
    if high > 0.7 and low < 0.1:
        return "utf-16-le"
    return "utf-16-be" if low > 0.7 and high < 0.1 else ""


def as_source(data):
    """(the text as a compiler reads it, what had to be changed as a noun or "", why it cannot be
    read as the end of a sentence or "")."""
    was, kind = "", file_kind(data)
    if kind:
        return data, was, "is %s, not text" % kind
    name = wide(data)
    if name:
        was = name[:6].upper()
        try:
            data = data.decode(name).encode("utf-8")
        except UnicodeError:
            return data, "", "begins like %s, and is damaged after that: save it again" % was
    if data.startswith(codecs.BOM_UTF8):
        data = data[len(codecs.BOM_UTF8):]
    if b"\0" in data:
        return data, "", ("has a NUL byte in line %d: it is damaged, or not text; save it again"
                          % (1 + data[:data.index(b"\0")].count(b"\n")))
    if b"\r" in data and b"\n" not in data:
        data, was = data.replace(b"\r", b"\n"), was or "a text whose lines end in CR only"
    return data, was, "" if data.strip() else "is empty"


def typographic(path, number, error):
    """What to do about a character of a word processor's that a compiler stumbled over in a line of
    a file, as a sentence after its error; ""."""
    if not re.search(r"stray|character|[^\x00-\x7f]", error):
        return ""
    lines = read_regular_file(path).decode("utf-8", "replace").split("\n")
    for letter in "".join(lines[number - 1:number]):
        if ord(letter) < 128 or unicodedata.category(letter)[0] in "LMN":
            continue
        name = unicodedata.name(letter, "U+%04X" % ord(letter)).lower()
        plain = PLAIN.get(letter) or unicodedata.normalize("NFKC", letter)
        if re.fullmatch(r"[\x21-\x7e]+", plain):
            return ". The line has %s (%s), as word processors write: type %s" % (
                letter, name, plain)
        return ". The line has an invisible or foreign character (%s): delete it" % name
    return ""
