/* engine_rates.c: what runs on a device at an instant, and how fast (pages/time.md, §§ 3 and 5). */
#include "time/engine_internal.h"

// ---- Start ----

Resource sim_resource_of(SimItemKind kind)
{
    return kind == SIM_ITEM_COMPUTE ? COMPUTE : kind == SIM_ITEM_COPY_IN ? ENGINE_IN : ENGINE_OUT;
}

static void start(SimEngine *e, Device *device, SimItem number)
{
    Item *item = sim_item(e, number);
    item->state = RUNNING;
    item->at.start = e->now;
    item->left = item->work;
    item->num = item->den = 0;
    device->changed = true;
    if (item->kind == SIM_ITEM_TRANSFER)
        sim_items_push(&device->transfers, number);
    else
        device->busy[sim_resource_of(item->kind)] = number;
}

void sim_engine_start_all(SimEngine *e)
{
    SimHeapEntry entry;
    for (int i = 0; i < e->starting.n; i++) {
        SimItem number = e->starting.item[i];
        start(e, sim_item_device(e, sim_item(e, number)), number);
    }
    e->starting.n = 0;
    for (int d = 0; d < e->n_devices; d++) {
        Device *device = &e->device[d];
        if (!device->changed) continue;
        for (int r = 0; r < RESOURCES; r++)
            if (!device->busy[r] && sim_heap_top(&device->queue[r], &entry)) {
                sim_heap_pop(&device->queue[r]);
                start(e, device, entry.item);
            }
    }
}

// ---- Rates ----

static uint64_t common(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static void set_rate(SimEngine *e, SimItem number, uint64_t num, uint64_t den)
{
    Item *item = sim_item(e, number);
    uint64_t divisor = common(num, den);
    num /= divisor;
    den /= divisor;
    if (item->num == num && item->den == den) return;
    if (item->den) {
        unsigned __int128 done = (unsigned __int128)(e->now - item->since) * item->num / item->den;
        item->left = done < item->left ? item->left - (SimPs)done : 0;
    }
    item->since = e->now;
    item->num = num;
    item->den = den;
    unsigned __int128 takes = ((unsigned __int128)item->left * den + num - 1) / num;
    sim_item_schedule(e, number, e->now + (SimPs)takes);
}

static bool is_host_copy(const SimEngine *e, SimItem number)
{
    SimItemKind kind = number ? sim_item(e, number)->kind : SIM_ITEM_HOST;
    return kind == SIM_ITEM_COPY_IN || kind == SIM_ITEM_COPY_OUT;
}

void sim_engine_set_rates(SimEngine *e, Device *device)
{
    const SimMachine *m = e->machine;
    uint64_t on_link[SIM_LINKS] = {0}, copies = 0;
    for (int i = 0; i < device->transfers.n; i++)
        on_link[sim_item(e, device->transfers.item[i])->link]++;
    for (int r = ENGINE_IN; r <= ENGINE_OUT; r++) copies += is_host_copy(e, device->busy[r]);
    SimRatio one = {1, 1};
    SimRatio slow = device->busy[COMPUTE] ? m->slow_transfer : one;
    for (int i = 0; i < device->transfers.n; i++) {
        SimLink link = sim_item(e, device->transfers.item[i])->link;
        uint64_t sharing = on_link[link] + (link == SIM_PCIE ? copies : 0);
        set_rate(e, device->transfers.item[i], slow.den, slow.num * sharing);
    }
    for (int r = ENGINE_IN; r <= ENGINE_OUT; r++)
        if (device->busy[r])
            set_rate(e, device->busy[r], 1,
                     is_host_copy(e, device->busy[r]) ? 1 + on_link[SIM_PCIE] : 1);
    if (device->transfers.n == 0)
        slow = one;
    else // the kernels of a collective on the network keep fewer multiprocessors busy
        slow = on_link[SIM_NIC] == (uint64_t)device->transfers.n ? m->slow_compute_nic
                                                                 : m->slow_compute;
    if (device->busy[COMPUTE]) set_rate(e, device->busy[COMPUTE], slow.den, slow.num);
    device->changed = false;
}
