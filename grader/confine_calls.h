/* confine_calls.h: the calls that confine.c's filter refuses. Of some processors' calls the headers
 * are asked; numbers above 423 are the same everywhere, and not in the headers of each version.
 */
#pragma once
#include <sys/syscall.h>

#ifdef __NR_open
#define CALL_OPEN __NR_open
#else
#define CALL_OPEN -1
#endif

static const long NEVER[] = {
// Modes, owners, times, extended attributes: Landlock has no rule for them.
#ifdef __NR_chmod
    __NR_chmod, __NR_chown, __NR_lchown, __NR_utime, __NR_utimes, __NR_futimesat,
#endif
    __NR_fchmod, __NR_fchmodat, __NR_fchown, __NR_fchownat, __NR_utimensat, __NR_setxattr,
    __NR_lsetxattr, __NR_fsetxattr, __NR_removexattr, __NR_lremovexattr, __NR_fremovexattr,
    // The system and its file systems.
    __NR_mount, __NR_umount2, __NR_pivot_root, __NR_chroot, __NR_unshare, __NR_setns, __NR_acct,
    __NR_quotactl, __NR_swapon, __NR_swapoff, __NR_reboot, __NR_sethostname, __NR_setdomainname,
    __NR_settimeofday, __NR_clock_settime, __NR_adjtimex, __NR_clock_adjtime, __NR_init_module,
    __NR_finit_module, __NR_delete_module, __NR_kexec_load, __NR_syslog, __NR_vhangup,
    __NR_name_to_handle_at, __NR_open_by_handle_at, __NR_fanotify_init, 428 /* open_tree */,
    429 /* move_mount */, 430 /* fsopen */, 431 /* fsconfig */, 432 /* fsmount */, 433 /* fspick */,
    442 /* mount_setattr */, 443 /* quotactl_fd */,
#ifdef __NR_iopl
    __NR_iopl, __NR_ioperm,
#endif
    // Ways past a filter, or into the kernel.
    425, 426, 427 /* io_uring */, __NR_bpf, __NR_perf_event_open, __NR_userfaultfd, __NR_keyctl,
    __NR_add_key, __NR_request_key,
    // Other processes' place on the processors.
    __NR_setpriority, __NR_ioprio_set, __NR_sched_setscheduler, __NR_sched_setparam,
    __NR_sched_setattr};

// Other processes' memory and descriptors.
static const long OF_OTHERS[] = {__NR_ptrace, __NR_process_vm_readv, __NR_process_vm_writev,
                                 __NR_kcmp,   438 /* pidfd_getfd */, 440 /* process_madvise */};

// What processes of an account share by number or name.
static const long SHARED[] = {__NR_semget, __NR_msgget, __NR_mq_open, __NR_mq_unlink};

// ioctl: a file's flags, by a descriptor that only reads; a terminal's input.
static const unsigned ATTRIBUTES[] = {0x40086602, 0x40087602, 0x401c5820, 0x5412, 0x541c};
