/* folder.c: makes, syncs, renames and removes the folders of checkpoints.
 *
 * A rename is atomic. But a rename, or the name of a new file, is on the disk only after the folder
 * that holds it has been synced.
 */
#define _GNU_SOURCE // asprintf
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint.h"

char *checkpoint_file(const char *dir, int i, int n)
{
    char *text = NULL;
    if (asprintf(&text, "%s/rank-%d-of-%d.safetensors", dir, i, n) >= 0) return text;
    fail(ERR_MEMORY, "no host memory for a path in %s", dir);
    return NULL;
}

char *checkpoint_name(const char *dir, const char *ending)
{
    size_t n = strlen(dir);
    while (n > 1 && dir[n - 1] == '/') n--; // DIR/ is DIR
    char *text = NULL;
    if (asprintf(&text, "%.*s%s", (int)n, dir, ending) >= 0) return text;
    fail(ERR_MEMORY, "no host memory for a path in %s", dir);
    return NULL;
}

bool folder_is_there(const char *dir)
{
    struct stat info;
    return lstat(dir, &info) == 0;
}

Status folder_make(const char *dir)
{
    if (mkdir(dir, 0777) == 0) return OK;
    return fail(ERR_IO, "%s: the folder cannot be made: %s", dir, strerror(errno));
}

Status folder_sync(const char *dir)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool good = fd >= 0 && fsync(fd) == 0;
    int error = errno;
    if (fd >= 0) close(fd);
    if (good) return OK;
    return fail(ERR_IO, "%s: the folder cannot be brought to the disk: %s", dir, strerror(error));
}

Status folder_sync_parent(const char *dir)
{
    char *copy = strdup(dir);
    if (copy == NULL) return fail(ERR_MEMORY, "no host memory for the path %s", dir);
    Status status = folder_sync(dirname(copy));
    free(copy);
    return status;
}

Status folder_rename(const char *from, const char *to)
{
    if (rename(from, to) == 0) return OK;
    return fail(ERR_IO, "%s: cannot be renamed to %s: %s", from, to, strerror(errno));
}

// Whether a checkpoint has a file of that name.
static bool is_ours(const char *name)
{
    int i, n, end = 0;
    if (strcmp(name, "index.json") == 0) return true;
    return sscanf(name, "rank-%d-of-%d.safetensors%n", &i, &n, &end) == 2 && end > 0 &&
           name[end] == '\0';
}

// Removes the files of the folder. With `only_look` it only checks that all are a checkpoint's.
static Status each_file(const char *dir, bool only_look)
{
    DIR *list = opendir(dir);
    Status status = OK;
    if (list == NULL) return fail(ERR_IO, "%s: cannot be read: %s", dir, strerror(errno));
    for (struct dirent *file; status == OK && (file = readdir(list)) != NULL;) {
        if (strcmp(file->d_name, ".") == 0 || strcmp(file->d_name, "..") == 0) continue;
        if (!is_ours(file->d_name))
            status = fail(ERR_IO, "%s: has a file %s, which no checkpoint has: name another folder",
                          dir, file->d_name);
        else if (!only_look && unlinkat(dirfd(list), file->d_name, 0) != 0)
            status = fail(ERR_IO, "%s: file %s cannot be removed: %s", dir, file->d_name,
                          strerror(errno));
    }
    closedir(list);
    return status;
}

Status folder_check(const char *dir)
{
    struct stat info;
    if (lstat(dir, &info) != 0) return OK;
    if (S_ISLNK(info.st_mode)) // a rename would move the link, and a removal what it leads to
        return fail(ERR_IO, "%s: is a symbolic link: name the folder itself", dir);
    return each_file(dir, true);
}

Status folder_remove(const char *dir)
{
    if (!folder_is_there(dir)) return OK;
    TRY(folder_check(dir));
    TRY(each_file(dir, false));
    if (rmdir(dir) == 0) return OK;
    return fail(ERR_IO, "%s: cannot be removed: %s", dir, strerror(errno));
}
