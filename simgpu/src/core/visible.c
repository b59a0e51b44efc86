/* visible.c: reads CUDA_VISIBLE_DEVICES: the devices that the program sees, and their order.
 *
 * "Only the devices whose index or UUID is present in the sequence are visible to CUDA
 * applications, and they are enumerated in the order of the sequence. If one of the indices is
 * invalid, only the devices whose index precedes the invalid index are visible." A device that is
 * named twice makes all of them invisible, as with today's drivers.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/config.h"

void sim_device_uuid(int physical, char bytes[16])
{
    memset(bytes, 0, 16);
    snprintf(bytes, 16, "simgpu%02d", physical);
}

// "GPU-73696d67-…".
static void write_uuid(int physical, char text[48])
{
    char bytes[16];
    sim_device_uuid(physical, bytes);
    char *to = text + sprintf(text, "GPU");
    for (int i = 0; i < 16; i++)
        to += sprintf(to, "%s%02x", i == 0 || (i >= 4 && i <= 10 && i % 2 == 0) ? "-" : "",
                      (unsigned char)bytes[i]);
}

// The number of the one device whose UUID begins with the text; -1: none does, or several do.
static int device_by_uuid(const char *text, size_t length, int devices)
{
    int found = -1;
    char uuid[48];
    for (int d = 0; d < devices; d++) {
        write_uuid(d, uuid);
        if (strncmp(uuid, text, length) != 0) continue;
        if (found >= 0) return -1;
        found = d;
    }
    return found;
}

// Returns -1 if no device has that number or UUID.
static int visible_device(const char *text, size_t length, int devices)
{
    char *end;
    if (strncmp(text, "GPU-", 4) == 0) return device_by_uuid(text, length, devices);
    long index = strtol(text, &end, 10);
    if (end == text) return -1;
    while (*end == ' ') end++;
    return end == text + length && index >= 0 && index < devices ? (int)index : -1;
}

// "-1", or nothing, ends a list on purpose.
static void note_unknown(SimConfig *config, const char *list, const char *entry, size_t length,
                         int devices)
{
    if (length == 0 || (length == 2 && strncmp(entry, "-1", 2) == 0)) return;
    snprintf(config->hidden, sizeof config->hidden,
             "CUDA_VISIBLE_DEVICES is \"%.60s\": its entry \"%.*s\" is none of the %d devices,\n"
             "and the program sees only those before it.",
             list, length < 60 ? (int)length : 60, entry, devices);
}

static void note_twice(SimConfig *config, const char *list, int device)
{
    snprintf(config->hidden, sizeof config->hidden,
             "CUDA_VISIBLE_DEVICES is \"%.60s\": it names device %d twice,\n"
             "so the program sees no device.",
             list, device);
}

void sim_read_visible(SimConfig *config, int devices)
{
    const char *list = getenv("CUDA_VISIBLE_DEVICES"), *text = list;
    bool taken[SIM_MAX_DEVICES] = {false};
    config->devices = devices;
    for (int d = 0; d < devices; d++) config->physical[d] = d;
    if (!text) return;
    config->devices = 0;
    for (;; text++) {
        size_t length = strcspn(text, ",");
        int device = visible_device(text, length, devices);
        if (device < 0) note_unknown(config, list, text, length, devices);
        if (device < 0) return;
        if (taken[device]) note_twice(config, list, device);
        if (taken[device]) config->devices = 0;
        if (taken[device]) return;
        taken[device] = true;
        config->physical[config->devices++] = device;
        text += length;
        if (!*text) return;
    }
}
