/* last_words.h: what a rank of an example says when it crashes, or comes no further. */
#ifndef EXAMPLES_LAST_WORDS_H
#define EXAMPLES_LAST_WORDS_H

// From here on a crash ends the process with one line that names the place in the program's own
// source, and so does a step that takes longer than LAST_WORDS_SECONDS (SHARDLAB_STEP_LIMIT in the
// environment is another limit; times SHARDLAB_TIME_FACTOR) once last_words_step has been called.
void last_words_watch(int rank);

// A step begins: the time for it starts again.
void last_words_step(void);
// No step for a while: this rank waits for another, whose steps are watched.
void last_words_pause(void);

// Appends a line to the file that SHARDLAB_PROGRESS names, where it is set: that the program has
// "started" its work, or is "done". An exit status alone could be anybody's.
void last_words_mark(const char *word);

enum { LAST_WORDS_SECONDS = 30, LAST_WORDS_LIMIT_EXIT = 124 };

#endif
