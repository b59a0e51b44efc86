# README.md as a manual page, simgpu(7): awk -v version=0.1 -f man.awk README.md. It reads what the
# README is written in: headings, paragraphs, items, tables, indented code, `code`, *words*, links.
function inline(text,    out) {
    gsub(/\\/, "\\e", text)
    while (match(text, /\[[^][]*\]\([^()]*\)/)) { # a link's words stay
        out = substr(text, RSTART + 1, RLENGTH - 1)
        sub(/\]\(.*/, "", out)
        text = substr(text, 1, RSTART - 1) out substr(text, RSTART + RLENGTH)
    }
    while (match(text, /`[^`]*`/))
        text = substr(text, 1, RSTART - 1) "\\fB" code(substr(text, RSTART + 1, RLENGTH - 2)) \
            "\\fR" substr(text, RSTART + RLENGTH)
    while (match(text, /(^|[ (])\*[^* ][^*]*\*/)) {
        out = substr(text, RSTART, RLENGTH)
        sub(/\*/, "\\fI", out)
        sub(/\*$/, "\\fR", out)
        text = substr(text, 1, RSTART - 1) out substr(text, RSTART + RLENGTH)
    }
    gsub("\001", "*", text)
    return text ~ /^[.']/ ? "\\&" text : text
}
function code(text) {
    gsub(/-/, "\\-", text)
    gsub(/\*/, "\001", text) # is no emphasis
    return text
}
function close_block() {
    if (prose != "") print inline(prose)
    if (block) print ".fi\n.RE"
    prose = ""
    block = blank = 0
}
function cells(line,    n, part, i, rest) {
    gsub(/^\| *| *\|$/, "", line)
    n = split(line, part, / +\| +/)
    for (i = 2; i <= n; i++) if (part[i] != "") rest = rest (rest == "" ? "" : "; ") part[i]
    print ".TP\n" inline(part[1]) "\n" inline(rest == "" ? "\\&" : rest)
}
NR == 1 {
    print "'\\\" -*- coding: utf-8 -*-\n.TH SIMGPU 7 \"\" \"simgpu " version "\""
    print ".SH NAME\nsimgpu \\- CUDA runtime, NCCL and cuBLAS, simulated on the CPU\n.SH DESCRIPTION"
    next
}
/^    / && (block || before == "") {
    if (!block) close_block()
    if (!block) print ".PP\n.RS 4\n.nf"
    else if (blank) print ""
    block = 1
    blank = 0
    text = substr($0, 5)
    gsub(/\\/, "\\e", text)
    gsub(/-/, "\\-", text)
    print (text ~ /^[.']/ ? "\\&" : "") text
    before = $0
    next
}
block && /^$/ { blank = 1; before = ""; next }
block || /^($|[|#]|- )/ { close_block() }
/^\|[-:| ]*\|$/ { before = $0; next }
/^\|/ {
    if (before ~ /^\|/) cells($0) # the first row only names the columns
    before = $0
    next
}
/^## /  { print ".SH " toupper(substr($0, 4)); before = ""; next }
/^### / { print ".SS " substr($0, 5); before = ""; next }
/^$/    { before = ""; next }
/^- /   { print ".IP \\(bu 2"; $0 = substr($0, 3); before = $0 }
{
    if (before == "") print ".PP"
    sub(/^ +/, "")
    prose = prose (prose == "" ? "" : " ") $0
    before = $0
}
END { close_block() }
