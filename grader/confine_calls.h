/* confine_calls.h: the calls that confine.c's filter refuses, by name, or by a number that is the
 * same on every processor and that older libraries have no name for. Each list of names ends with
 * NULL.
 */
#pragma once
#include <linux/sched.h>
#include <stddef.h>

static const char *const NEVER[] = {
    // Modes, owners, times, extended attributes: Landlock has no rule for them.
    "chmod", "fchmod", "fchmodat", "chown", "fchown", "lchown", "fchownat", "utime", "utimes",
    "futimesat", "utimensat", "setxattr", "lsetxattr", "fsetxattr", "removexattr", "lremovexattr",
    "fremovexattr",
    // The system and its file systems.
    "mount", "umount2", "pivot_root", "chroot", "unshare", "setns", "acct", "quotactl", "swapon",
    "swapoff", "reboot", "sethostname", "setdomainname", "settimeofday", "clock_settime",
    "adjtimex", "clock_adjtime", "init_module", "finit_module", "delete_module", "kexec_load",
    "syslog", "vhangup", "name_to_handle_at", "open_by_handle_at", "fanotify_init", "iopl",
    "ioperm",
    // Ways past a filter, or into the kernel.
    "bpf", "perf_event_open", "userfaultfd", "keyctl", "add_key", "request_key",
    // Other processes' place on the processors.
    "setpriority", "ioprio_set", "sched_setscheduler", "sched_setparam", "sched_setattr", NULL};
static const int NEVER_NUMBERS[] = {425,
                                    426,
                                    427 /* io_uring */,
                                    428 /* open_tree */,
                                    429 /* move_mount */,
                                    430 /* fsopen */,
                                    431 /* fsconfig */,
                                    432 /* fsmount */,
                                    433 /* fspick */,
                                    442 /* mount_setattr */,
                                    443 /* quotactl_fd */};

// Other processes' memory and descriptors.
static const char *const OF_OTHERS[] = {"ptrace", "process_vm_readv", "process_vm_writev", "kcmp",
                                        NULL};

// What processes of an account share by number or name.
static const char *const SHARED[] = {"semget", "msgget", "mq_open", "mq_unlink", NULL};

// ioctl: a file's flags, by a descriptor that only reads; a terminal's input.
static const unsigned ATTRIBUTES[] = {0x40086602, 0x40087602, 0x401c5820, 0x5412, 0x541c};

// clone: namespaces of its own.
static const uint32_t NAMESPACES[] = {CLONE_NEWNS,   CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC,
                                      CLONE_NEWUSER, CLONE_NEWPID,    CLONE_NEWNET};
