/* notes.c: keeps the last records and waits: reports of races use them to guess which order the
 * program intended.
 */
#include "streams/handles.h"

#define NOTES 512

static SimNote notes[NOTES];
static uint64_t n_notes;

uint64_t sim_next_order(void)
{
    static uint64_t order;
    return ++order;
}

void sim_note(SimNote note)
{
    if (sim_config()->check != CHECK_FULL) return;
    note.order = sim_next_order();
    notes[n_notes++ % NOTES] = note;
}

// The note `back` notes ago; NULL: there is none.
static const SimNote *note_of(uint64_t back)
{
    return back < n_notes && back < NOTES ? &notes[(n_notes - 1 - back) % NOTES] : NULL;
}

void sim_note_wait(const struct CUstream_st *s, cudaEvent_t event, const void *site)
{
    int slot = event->recorded_on.slot;
    bool known = event->recorded && slot < event->clock.n;
    sim_note((SimNote){.kind = NOTE_WAIT,
                       .event = event->number,
                       .stream = sim_stream_id(s),
                       .recorded = event->recorded,
                       .on = event->recorded_on,
                       .upto = known ? event->clock.t[slot] : 0,
                       .site = site,
                       .at = event->recorded_at});
}

// The first record after `since` that covers operation `time` of a slot.
static const SimNote *covering_record(int slot, uint64_t time, uint64_t since)
{
    const SimNote *first = NULL, *note;
    for (uint64_t back = 0; (note = note_of(back)) && note->order > since; back++)
        if (note->kind == NOTE_RECORD && note->stream.slot == slot && note->upto >= time)
            first = note;
    return first;
}

// The next record of the wait's event, if it covers operation `time` of a slot: perhaps the one for
// which the wait was meant.
static const SimNote *next_record(const SimNote *wait, int slot, uint64_t time)
{
    const SimNote *next = NULL, *note;
    for (uint64_t back = 0; (note = note_of(back)) && note->order > wait->order; back++)
        if (note->kind == NOTE_RECORD && note->event == wait->event) next = note;
    return next && next->stream.slot == slot && next->upto >= time ? next : NULL;
}

// Looks for a wait of the second's stream that should perhaps have covered the first: one that was
// called after the first or, if not `recent`, before it.
static bool hint_of_waits(SimHint *hint, int slot, uint64_t time, uint64_t since, int second,
                          bool recent)
{
    const SimNote *w;
    for (uint64_t back = 0; (w = note_of(back)); back++) {
        if (w->kind != NOTE_WAIT || w->stream.slot != second || (w->order > since) != recent)
            continue;
        const SimNote *later = next_record(w, slot, time);
        *hint = (SimHint){HINT_NONE,
                          w->recorded ? w->at
                          : later     ? later->site
                                      : NULL,
                          w->site, w->on};
        if (!w->recorded && (later || recent))
            hint->kind = HINT_NEVER;
        else if (w->recorded && w->on.slot == slot && w->upto < time && (later || recent))
            hint->kind = later ? HINT_RENEWED : HINT_EARLY;
        else if (w->recorded && w->on.slot != slot && recent)
            hint->kind = HINT_ELSEWHERE;
        if (hint->kind == HINT_RENEWED) hint->record = later->site;
        if (hint->kind != HINT_NONE) return true;
    }
    return false;
}

// What the program did with the events that were recorded after the first.
static bool hint_of_records(SimHint *hint, int slot, uint64_t time, uint64_t since, int second)
{
    const SimNote *record = covering_record(slot, time, since), *w;
    if (!record) return false;
    *hint = (SimHint){.kind = HINT_NOT_WAITED, .record = record->site};
    for (uint64_t back = 0; (w = note_of(back)) && w->order > record->order; back++)
        if (w->kind == NOTE_WAIT && w->stream.slot != second && w->stream.slot != slot &&
            w->recorded && w->on.slot == slot && w->upto >= time)
            *hint = (SimHint){HINT_OTHER_WAITED, w->at, w->site, w->stream};
    return true;
}

static bool hint_of_host(SimHint *hint, uint64_t since)
{
    const SimNote *w;
    for (uint64_t back = 0; (w = note_of(back)) && w->order > since; back++) {
        if (w->kind != NOTE_HOST_WAIT) continue;
        *hint = (SimHint){HINT_HOST_ELSEWHERE, NULL, w->site, w->stream};
        return true;
    }
    return false;
}

SimHint sim_stream_hint(const SimStreamId *first, uint64_t time, uint64_t since,
                        const SimStreamId *second)
{
    SimHint hint = {.kind = HINT_NONE}, before;
    int slot = first->slot;
    if (first->branch && second->branch) return (SimHint){.kind = HINT_NODES};
    pthread_mutex_lock(&sim_streams_lock);
    if (!hint_of_waits(&hint, slot, time, since, second->slot, true)) {
        bool recorded = hint_of_records(&hint, slot, time, since, second->slot);
        if ((!recorded || hint.kind == HINT_NOT_WAITED) &&
            hint_of_waits(&before, slot, time, since, second->slot, false))
            hint = before;
        else if (!recorded)
            hint_of_host(&hint, since);
    }
    pthread_mutex_unlock(&sim_streams_lock);
    return hint;
}
