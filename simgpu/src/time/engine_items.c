/* engine_items.c: the engine's tables: items in a ring by number, their followers, devices. */
#include <string.h>

#include "time/engine_internal.h"
#include "time/tables.h"

// ---- Memory ----

void sim_items_push(Items *list, SimItem item)
{
    if (list->n == list->room) {
        list->room = list->room ? 2 * list->room : 8;
        list->item = sim_table_grow(list->item, (size_t)list->room, sizeof *list->item);
    }
    list->item[list->n++] = item;
}

void sim_items_drop(Items *list, SimItem item)
{
    for (int i = 0; i < list->n; i++)
        if (list->item[i] == item) {
            list->item[i] = list->item[--list->n];
            return;
        }
}

Item *sim_item(const SimEngine *e, SimItem number)
{
    return &e->items[number & (e->room - 1)];
}

// The caller fills in its fields.
Item *sim_item_new(SimEngine *e, SimItem *number)
{
    if (e->next - e->first == e->room) {
        size_t room = e->room ? 2 * e->room : 256;
        Item *items = sim_table_grow(NULL, room, sizeof *items);
        for (SimItem i = e->first; i < e->next; i++) items[i & (room - 1)] = *sim_item(e, i);
        sim_table_free(e->items);
        e->items = items;
        e->room = room;
    }
    *number = e->next++;
    return sim_item(e, *number);
}

void sim_item_add_follower(SimEngine *e, Item *item, SimItem follower)
{
    uint32_t edge = e->free_edge;
    if (edge) {
        e->free_edge = e->edges[edge].next;
    } else {
        if (e->n_edges == e->edges_room) {
            e->edges_room = e->edges_room ? 2 * e->edges_room : 256;
            e->edges = sim_table_grow(e->edges, e->edges_room, sizeof *e->edges);
            if (!e->n_edges) e->n_edges = 1; // 0 is none
        }
        edge = e->n_edges++;
    }
    e->edges[edge] = (Edge){item->followers, follower};
    item->followers = edge;
}

Device *sim_item_device(SimEngine *e, const Item *item)
{
    int index = item->device;
    if (index >= e->n_devices) {
        e->device = sim_table_grow(e->device, (size_t)index + 1, sizeof *e->device);
        memset(e->device + e->n_devices, 0, (size_t)(index + 1 - e->n_devices) * sizeof *e->device);
        e->n_devices = index + 1;
    }
    return &e->device[index];
}

void sim_item_schedule(SimEngine *e, SimItem number, SimPs when)
{
    Item *item = sim_item(e, number);
    sim_heap_push(&e->events, (SimHeapEntry){when, 0, number, ++item->version});
}
