/* time/engine_internal.h: what engine.c, engine_items.c and engine_rates.c share. */
#ifndef SIMGPU_ENGINE_INTERNAL_H
#define SIMGPU_ENGINE_INTERNAL_H

#include "time/engine.h"
#include "time/timeline.h"

typedef enum State {
    WAITING,   // for other items
    QUEUED,    // ready, in its resource's order
    ARRIVED,   // other ranks have not arrived, or that is not known
    SCHEDULED, // its transfer starts, or its meeting ends, at a time that is known
    RUNNING,
    ENDED,
} State;

// The fields of its SimItemSpec, and its results. Most items are of the host and use only
// the first cache line, to leave the cache to the program.
#define CACHE_LINE 64
typedef struct Item {
    SimItemKind kind;
    State state;
    uint32_t waits_for; // that number of items
    uint32_t followers; // the first edge, 0: none
    uint32_t version;   // of its event
    int device;
    SimTimes at;
    SimPs work, not_before;
    // Operations
    _Alignas(CACHE_LINE) uint64_t stream;
    SimPs left, since; // work left when the rate was last set
    uint64_t num, den; // the rate; 0: not set
    // Calls
    SimPs latency;
    SimLink link;
    _Alignas(CACHE_LINE) SimCall call;
    SimPs bound; // ARRIVED: it does not start before
} Item;

typedef struct Edge {
    uint32_t next;
    SimItem to;
} Edge;

typedef struct Items {
    SimItem *item;
    int n, room;
} Items;

typedef enum Resource { COMPUTE, ENGINE_IN, ENGINE_OUT, RESOURCES } Resource;

typedef struct Device {
    SimHeap queue[RESOURCES];
    SimItem busy[RESOURCES]; // 0: idle
    Items transfers;         // under way
    bool changed;            // since rates were set
} Device;

typedef struct Thread {
    bool lives;
    SimItem clock;
} Thread;

struct SimEngine {
    const SimMachine *machine;
    SimBoard board;
    Item *items; // (room, a power of 2), by number modulo room
    SimItem first, next, oldest;
    size_t room;
    Edge *edges;
    uint32_t n_edges, edges_room, free_edge;
    SimHeap events;
    Items arrived;                 // transfers and meetings whose start is not known
    Items starting;                // transfers that start at this instant
    Items ready;                   // to be started
    size_t to_come, meets_to_come; // calls that have not arrived
    bool news;                     // a rank of this engine has arrived somewhere
    Device *device;
    int n_devices;
    Thread *thread;
    int n_threads;
    SimPs now, settled, promised;
};

// ---- engine_items.c ----
void sim_items_push(Items *list, SimItem item);
void sim_items_drop(Items *list, SimItem item);
Item *sim_item(const SimEngine *e, SimItem number);
Item *sim_item_new(SimEngine *e, SimItem *number);
void sim_item_add_follower(SimEngine *e, Item *item, SimItem follower);
Device *sim_item_device(SimEngine *e, const Item *item);
void sim_item_schedule(SimEngine *e, SimItem number, SimPs when); // its next event

// ---- engine_rates.c ----
Resource sim_resource_of(SimItemKind kind);
// Starts the transfers whose instant it is, and what is first on an idle resource.
void sim_engine_start_all(SimEngine *e);
void sim_engine_set_rates(SimEngine *e, Device *device);

#endif
