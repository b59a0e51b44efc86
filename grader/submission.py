"""What a student's file may be made of, found out before any of it runs.

The tests run in the same process as the code under test, so code that sets out to deceive them must
not get there. A task file computes, calls CUDA, NCCL, cuBLAS and the kit's functions, and prints;
what it would need for deceiving (a process's memory, files, signals, code that runs before main, a
function in place of one of the tests') no task needs. So the source is looked at as the
preprocessor sees it, the object as the linker does, and a file that oversteps is not run: its task
gets an *error* that names what was found.

This is a fence and no prison. C can compute any address, and the address of one function of the C
library gives those of all: grader/runner.py keeps the channel of the results, the limits and the
end of every process to itself for that reason, and the kernel keeps what runs from everything that
is not its own (grader/confine.c).

Interface: look_at_file(path, folder), look_at_source(...), look_at_object(...), look_at_calls(...)
return a sentence (without the file's name) or ""; is_linked(object, program): whether the program
holds the object's code; Elf.
Sources: the ELF-64 specification (System V ABI, chapters 4 and 5); cpp's manual on linemarkers.
"""

import os
import re
import stat
import struct

MOST_SOURCE = 1 << 20       # bytes of a task file
MOST_EXPANDED = 32 << 20    # bytes of it when it is preprocessed

# ---- The file ----


def look_at_file(path, folder):
    """Whether it is an ordinary file of this folder, with something in it."""
    if os.path.islink(path) and not os.path.exists(path):
        return "is a link to a file that is not there: put the file itself there"
    if os.path.dirname(os.path.realpath(path)) != os.path.realpath(folder):
        return "is a link to outside its folder: put the file itself there"
    info = os.stat(path)
    if not stat.S_ISREG(info.st_mode):
        return "is a folder, not a file" if os.path.isdir(path) else "is not a regular file"
    if info.st_size > MOST_SOURCE:
        return "has %d bytes: more than %d are not read" % (info.st_size, MOST_SOURCE)
    return ""


# ---- The source ----

# Comments go, literals stay. What stands in <> of an #include is a literal too.
LEXED = re.compile(r'//[^\n]*|/\*.*?(?:\*/|\Z)|"(?:\\.|[^"\\\n])*"?|\'(?:\\.|[^\'\\\n])*\'?'
                   r'|\binclude(?:_next)?\s*\(?\s*<[^>\n]*>|\b__has_include\w*\s*\(?\s*<[^>\n]*>',
                   re.DOTALL)
LEXED_OR_RAW = re.compile(r'\b(?:u8|[uUL])?R"|' + LEXED.pattern, re.DOTALL)
# C has no raw strings, but gcc does, and in one nothing of the above holds; nor does it in a
# header's name with such characters.
RAW = re.compile(r'\b(?:u8|[uUL])?R"')
ODD_HEADER = re.compile(r'\b(?:include|include_next|import|embed|__has_\w+)(?:\s|\(|/\*.*?\*/)*'
                        r'(?:<[^>\n]*(?://|/\*|["\'\\])|"[^"\n]*\\)')
# What stays of a preprocessor's directives in what it makes, and is obeyed there.
PRECOMPILED = re.compile(r"\bpch_preprocess\b")
SPLICED = re.compile(r"\\[ \t\v\f\r]*$", re.MULTILINE)
LINEMARKER = re.compile(r'# \d+ "((?:\\.|[^"\\])*)"')
RENUMBERED = re.compile(r"^[ \t\v\f\r]*(?:#|%:|\?\?=)[ \t\v\f\r]*(?:line\b|\d)", re.MULTILINE)
ASSEMBLY = re.compile(r"\b(?:asm|__asm|__asm__)\b")
# How system headers give a function another name: extern int f(…) __asm__ ("" "__isoc99_f");
RENAMED = re.compile(r'\b__asm__ *\( *("" *)?"'
                     r'(?!(?:syscall|sysenter|svc|ecall|scall|int)\b)\w+" *\)')
CALLERS = re.compile(r"\b__builtin_(frame_address|return_address|eh_return|unwind_init|setjmp|"
                     r"longjmp|apply|apply_args|return|thread_pointer|nonlocal_goto)\b")
ATTRIBUTE = re.compile(r"\b__attribute(?:__)?\b|\[\s*\[")
# All of one, where its brackets are round and at most three deep: nearly all are.
SHALLOW = re.compile(r"\s*(\((?:[^][()]|\((?:[^][()]|\([^][()]*\))*\))*\))")
FORBIDDEN = re.compile(r"\b_*(section|constructor|destructor|ifunc|symver|weakref|alias|"
                       r"target_clones|copy|init_priority)_*\b")


def joined(text):
    """C source with its lines joined as the preprocessor joins them."""
    return re.sub(r"\\[ \t\v\f\r]*\n", "", text.replace("\r\n", "\n").lstrip("\ufeff"))


def bare(text):
    """C source with its lines joined, and without comments."""
    return LEXED.sub(lambda found: " " if found.group().startswith(("//", "/*")) else found.group(),
                     joined(text))


def hides(text):
    """What in a student's file hides from readers, or from these looks, what it says; ""."""
    # Where literals and comments are is known up to the first raw string, and so what that is.
    text = joined(text)
    if any(RAW.match(found.group()) for found in LEXED_OR_RAW.finditer(text)):
        return "has a raw string literal, R\"…\", which C does not have"
    if ODD_HEADER.search(text):
        return "names a header with a quote, a backslash or the beginning of a comment in its name"
    if RENUMBERED.search(bare(text)):
        return "has a #line directive, which hides from readers where code comes from"
    return ""


def attributes(text):
    """What stands in each attribute of preprocessed C."""
    for found in ATTRIBUTE.finditer(text):
        shallow = found.group()[0] == "_" and SHALLOW.match(text, found.end())
        if shallow:
            yield shallow.group(1)
            continue
        depth, place = 0, text.find("(", found.end()) if found.group()[0] == "_" else found.start()
        begin = place
        while 0 <= place < len(text):
            depth += (text[place] in "([") - (text[place] in ")]")
            place += 1
            if depth == 0:
                break
        yield text[begin:place]


def foreign_header(name):
    return ("includes %s: a task includes headers of the kit, of the system, and of its own folder"
            % name)


def leads(headers, path):
    """Whether a link in a folder of headers leads to the file: Debian 13 has <asm/errno.h> in
    /usr/lib/linux, and GCC names that place."""
    parts = path.split(os.sep)
    return any(os.path.realpath(os.path.join(headers, *parts[i:])) == path
               for i in range(1, len(parts)))


def look_at_source(folder, expanded, files, headers, root):
    """`expanded`: the preprocessed file, without comments; `files`: every file that went
    into it; `folder`: where the student's are; `headers`: the folders that hold headers for
    everybody; `root`: the kit's."""
    folder = os.path.realpath(folder)
    headers = [os.path.realpath(os.path.join(root, path)) + os.sep for path in headers]
    kit = os.path.realpath(root) + os.sep
    systems = [path for path in headers if not path.startswith((kit, folder + os.sep))]
    own = []
    for name in files:
        path = os.path.realpath(os.path.join(root, name))
        if os.path.dirname(path) == folder and path.endswith((".c", ".h")):
            own.append(path)
        elif not (path.startswith(tuple(headers)) or any(leads(one, path) for one in systems)):
            return foreign_header(name)
    for path in own:
        with open(path, encoding="utf-8", errors="replace") as file:
            wrong = hides(file.read())
        if wrong:
            return wrong
    # Where each line comes from, as the linemarkers say it: # 12 "file" flags.
    ours, known = True, {}
    for line in expanded.split("\n"):
        mark = LINEMARKER.match(line)
        if mark:
            name = mark.group(1)
            if name not in known:
                path = os.path.realpath(os.path.join(root, name))
                known[name] = path.startswith((folder + os.sep, os.path.realpath(root) + os.sep))
            ours = known[name]
        elif "asm" in line and ASSEMBLY.search(line if ours else RENAMED.sub("", line)):
            if not ours and re.match(r"\s*#", line):
                continue
            return "has inline assembly, which no task needs"
    if PRECOMPILED.search(expanded):
        return "asks for a precompiled header, which no task needs"
    if SPLICED.search(expanded):
        return "has a backslash at the end of a line that a macro makes"
    found = CALLERS.search(expanded)
    if found:
        return "reaches its callers through %s, which no task needs" % found.group()
    for text in dict.fromkeys(attributes(expanded)):
        found = FORBIDDEN.search(text)
        if found:
            return "uses the attribute %s, which no task needs" % found.group(1)
    return ""


# ---- The object ----

class NotElf(Exception):
    """The file is not a 64-bit ELF file that we can read."""


class Elf:
    """An object or a program: its sections and symbols.

    sections: (name, type, flags, bytes' begin, length, link, info, entry size, address)
    symbols, dynamic: (name, kind, binding, section's number, value) of what is not local, and of
    sections and functions that are
    """

    def __init__(self, path):
        with open(path, "rb") as file:
            self.data = data = file.read()
        if data[:5] != b"\x7fELF\x02" or len(data) < 64:
            raise NotElf("%s is not a 64-bit ELF file" % path)
        self.end = "<" if data[5] == 1 else ">"
        try:
            self.machine, = self.unpack("H", 18)
            table, = self.unpack("Q", 40)
            size, count, names = self.unpack("HHH", 58)
            raw = [self.unpack("IIQQQQIIQQ", table + i * size) for i in range(count)]
            strings = raw[names][4] if raw else 0
            self.sections = [(self.string(strings, r[0]), r[1], r[2], r[4], r[5], r[6], r[7], r[9],
                              r[3]) for r in raw]
            self.symbols = self.table(2)
            self.dynamic = self.table(11)
        except (struct.error, IndexError, ValueError) as problem:
            raise NotElf("%s: %s" % (path, problem))

    def unpack(self, form, place):
        return struct.unpack_from(self.end + form, self.data, place)

    def string(self, begin, offset):
        place = begin + offset
        return self.data[place:self.data.index(b"\0", place)].decode("utf-8", "replace")

    def table(self, kind):
        found = []
        for section in self.sections:
            if section[1] != kind:
                continue
            strings = self.sections[section[5]][3]
            for place in range(section[3], section[3] + section[4], 24):
                name, info, _, where, value, _ = self.unpack("IBBHQQ", place)
                found.append((self.string(strings, name), info & 15, info >> 4, where, value))
        return found

    def defined(self):
        """The names that others see."""
        return {s[0] for s in self.symbols if s[2] != 0 and s[3] != 0}

    def undefined(self):
        return {s[0] for s in self.symbols if s[3] == 0 and s[0]}

    def exported(self):
        """The names of a program that win over those of the libraries it is linked with."""
        return {s[0] for s in self.dynamic if s[2] != 0 and s[3] != 0}


SECTIONS = re.compile(r"(\.rela?)?\.(text|data|bss|rodata|tdata|tbss|lrodata|ldata|lbss|comment"
                      r"|debug_\w+|note\.GNU-stack|note\.gnu\.property|eh_frame)"
                      r"(\.[\w.$*-]*)?|\.llvm[\w.]*|\.symtab|\.strtab|\.shstrtab|\.symtab_shndx"
                      r"|\.group|")
SANITIZED = re.compile(r"(\.rela?)?(\.init_array\.\d+|\.fini_array\.\d+|asan_globals|"
                       r"\.preinit_array|\.data\.rel\.ro\.local)")
SHF_WRITE, SHF_EXEC = 1, 4
STT_IFUNC = 10
STARTS = {".init_array": "before main", ".preinit_array": "before main", ".ctors": "before main",
          ".init": "before main", ".fini_array": "after main", ".dtors": "after main",
          ".fini": "after main"}


def look_at_object(elf, ours, others, sanitized=False):
    """`ours`: the names the task is to define; `others`: those that the tests, the kit and the
    other tasks define or use."""
    for name, _, flags, *_ in elf.sections:
        if sanitized and SANITIZED.fullmatch(name):
            continue
        for start, when in STARTS.items():
            if name == start or name.startswith(start + "."):
                return "has code that runs %s, which no task needs" % when
        if name.startswith(".note.GNU-stack") and flags & SHF_EXEC:
            return ("makes the stack executable: a function inside of a function whose address is "
                    "taken does that; put it outside")
        if not SECTIONS.fullmatch(name):
            return "has a section %s, which no compiler emits for a task" % name
        if flags & SHF_EXEC and (flags & SHF_WRITE or not name.startswith(".text")):
            return "has code in the section %s" % name
    for name, kind, *_ in elf.symbols:
        if kind == STT_IFUNC:
            return "runs code when %s is resolved, before main" % name
    for name in sorted(elf.defined() - ours):
        if name == "main":
            return "has a main(), and the tests have their own: remove it"
        if name in others or name.startswith("_") and not sanitized:
            return ("defines %s, which belongs to another part of the program: make it static, or "
                    "give it another name" % name)
    return ""


# What a task may call of the C library: what computes, what prints, memory, time. Names that the
# compiler makes of these (__printf_chk, __isoc23_strtol) are led back to them.
MATH = """acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 expm1
    fabs fdim floor fma fmax fmin fmod frexp hypot ilogb ldexp lgamma llrint llround log log10 log1p
    log2 logb lrint lround modf nan nearbyint nextafter pow remainder remquo rint round scalbln
    scalbn sin sincos sinh sqrt tan tanh tgamma trunc exp10 isnan isinf finite fpclassify signbit"""
LIBRARY = set("""
    memcpy memmove memset memcmp memchr memrchr mempcpy memmem bzero bcopy bcmp
    strlen strnlen strcmp strncmp strcasecmp strncasecmp strcpy strncpy stpcpy stpncpy strcat
    strncat strchr strrchr strchrnul strstr strspn strcspn strpbrk strtok strtok_r strdup strndup
    strerror strerror_r xpg_strerror_r strsignal rawmemchr strlcpy strlcat strsep
    malloc calloc realloc reallocarray free aligned_alloc posix_memalign memalign alloca
    abs labs llabs div ldiv lldiv imaxabs qsort qsort_r bsearch rand srand rand_r random srandom
    drand48 atoi atol atoll atof strtol strtoll strtoul strtoull strtod strtof strtold strtoimax
    strtoumax getenv
    printf fprintf vprintf vfprintf sprintf snprintf vsprintf vsnprintf asprintf vasprintf puts
    fputs putchar fputc putc putchar_unlocked fputc_unlocked putc_unlocked fwrite fflush perror
    sscanf vsscanf stdout stderr overflow
    isalnum isalpha isblank iscntrl isdigit isgraph islower isprint ispunct isspace isupper isxdigit
    tolower toupper ctype_b_loc ctype_tolower_loc ctype_toupper_loc
    errno_location assert_fail assert assert_perror_fail stack_chk_fail stack_chk_guard
    fortify_fail chk_fail
    time clock clock_gettime gettimeofday nanosleep clock_nanosleep usleep sleep sched_yield
    difftime abort exit _exit _Exit
    getpid pthread_self pthread_mutex_init pthread_mutex_lock pthread_mutex_trylock
    pthread_mutex_unlock pthread_mutex_destroy pthread_once tls_get_addr
    _GLOBAL_OFFSET_TABLE_ dso_handle fentry mcount
    feclearexcept feraiseexcept fetestexcept fegetround fesetround
""".split()) | {name + kind for name in MATH.split() for kind in ("", "f", "l")}
COMPILERS = re.compile(r"__(asan|ubsan|tsan|lsan|sanitizer|gcov|aarch64|atomic|sync|cyg_profile)"
                       r"_\w+|__[a-z]+[sdtx][fi](2|3|4|[sdtx][fi]2?)")
GPU = re.compile(r"(cuda|nccl|cublas)[A-Z]\w*")
# These return functions of the driver, which no log has.
PAST_THE_LOG = re.compile(r"cudaGetDriverEntryPoint\w*|cudaGetExportTable")
HEADERS = ("fsdp.h", "nn.h", "kernels.h", "box_muller.h", "check.h", "not_yet.h", "mesh.h",
           "buffer.h", "dtype.h")
OF_LABS = ("strategy.h", "precision.h", "prefetch.h", "recompute.h", "offload.h", "host_kernels.h",
           "extensions.h", "per_parameter.h", "fp8_gather.h", "e4m3.h", "pipeline.h", "rounding.h",
           "step_graph.h")
# Only one lab writes and renames files.
OF_ONE = {"checkpoint.h": "checkpoints", "safetensors.h": "checkpoints"}


def headers_for(task):
    """The kit's headers that a task (manifest.Task) may include; None: all of them."""
    in_lab = task is None or task.kind.word == "lab"
    folder = task and task.folder.partition("_")[2]
    return HEADERS + OF_LABS * in_lab + tuple(
        name for name, lab in OF_ONE.items() if task is None or in_lab and lab == folder)


def declared(root, task=None):
    """What of the kit a task may use: functions and constants of its headers; None: all tasks."""
    names = set()
    for header in headers_for(task):
        try:
            with open(os.path.join(root, "include", header), encoding="utf-8") as file:
                text = bare(file.read())
                names.update(re.findall(r"\b([A-Za-z_]\w*)\s*\(", text))
                names.update(re.findall(r"\bextern const \w+ (\w+);", text))
        except OSError:
            continue # a release may hold less
    return names


def of_another(needs, task):
    """Which of the kit's headers among the files of a text is not the task's, as a sentence; ""."""
    allowed = headers_for(task)
    for name in HEADERS + OF_LABS + tuple(OF_ONE):
        if name not in allowed and "include/" + name in needs:
            return "includes %s, which %s" % (name, "is only for lab %s" % OF_ONE[name]
                                              if name in OF_ONE else "is only for labs")
    return ""


def plain(name):
    """The function that a name of the compiler's stands for."""
    found = re.fullmatch(r"__(?:isoc99_|isoc23_)?(\w+?)(?:_chk|_finite|_unlocked)?(?:@.*)?", name)
    return found.group(1) if found else name.partition("@")[0]


def called(elf, allowed):
    """What it calls of the kit and of the GPU's libraries."""
    return {name for name in elf.undefined() if name in allowed or GPU.fullmatch(name)}


def look_at_calls(elf, allowed, path):
    """Of a file that could be linked: what it uses must be among what tasks use, or `allowed`."""
    strange = [name for name in sorted(elf.undefined()) if not (
        name in allowed or name in LIBRARY or plain(name) in LIBRARY or COMPILERS.fullmatch(name)
        or GPU.fullmatch(name) and not PAST_THE_LOG.fullmatch(name))]
    if not strange:
        return ""
    places = [name + line_of(name, path) for name in strange[:4]]
    if len(strange) > 4:
        places[3:] = ["%d others" % (len(strange) - 3)]
    words = places[0] if len(places) == 1 else "%s and %s" % (", ".join(places[:-1]), places[-1])
    return ("uses %s, which no task needs, so its tests are not run. What a task may use is listed "
            "in grader/submission.py" % words)


def line_of(name, path):
    """Where a name stands first in a source, in brackets, if it does."""
    with open(path, encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            if re.search(r"\b%s\b(?!\.h)" % re.escape(name), line.partition("//")[0]) \
                    and not line.lstrip().startswith(("#include", "*", "/*")):
                return " (line %d)" % number
    return ""


# ---- The program ----

# Bytes that the linker may change at a relocation: behind its place, and in front of it (a load
# through the table of addresses becomes a direct one on x86-64).
RELOCATED = {62: (4, 8), 183: (0, 4)}


def is_linked(elf, program):
    """Whether the program's code is that of the object, but for the addresses the linker fills in.
    None: not known on this machine's processor, or the object has no code."""
    if elf.machine not in RELOCATED:
        return None
    before, behind = RELOCATED[elf.machine]
    places = {s[0]: s[4] for s in program.symbols if s[2] != 0 and s[3] != 0}
    seen = None
    for number, (name, _, flags, begin, length, *_) in enumerate(elf.sections):
        anchors = [(s[0], s[4]) for s in elf.symbols if s[2] != 0 and s[3] == number and s[1] == 2]
        if not flags & SHF_EXEC or not length or not anchors:
            continue
        symbol, offset = anchors[0]
        if symbol not in places:
            return False
        want = bytearray(elf.data[begin:begin + length])
        have = bytearray(code_at(program, places[symbol] - offset, length))
        if len(have) != length:
            return False
        for _, kind, _, place, size, _, info, entry, _ in elf.sections:
            if kind not in (4, 9) or info != number:
                continue
            for i in range(place, place + size, entry):
                where, = elf.unpack("Q", i)
                for hole in range(max(0, where - before), min(length, where + behind)):
                    want[hole] = have[hole] = 0
        if want != have:
            return False
        seen = True
    return seen


def code_at(program, address, length):
    """The bytes of a program that lie at an address."""
    for _, _, flags, begin, size, _, _, _, at in program.sections:
        if flags & SHF_EXEC and at <= address and address + length <= at + size:
            return program.data[begin + address - at:begin + address - at + length]
    return b""
