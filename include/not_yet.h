/* not_yet.h: the parts of a task that nobody has written yet. Given code.
 *
 * A file of skeleton/ has NOT_YET("3.2") where part 3.2 belongs. A rank that reaches it says so in
 * one sentence and ends with an exit status of its own, so that an unwritten part is never mistaken
 * for a wrong one.
 */
#ifndef SHARDLAB_NOT_YET_H
#define SHARDLAB_NOT_YET_H

#define NOT_YET(part) check_not_yet((part), __FILE__, __LINE__, __func__)
_Noreturn void check_not_yet(const char *part, const char *file, int line, const char *function);

// Sets a function that gets the sentence of a NOT_YET before the rank ends; NULL: none.
void check_on_not_yet(void (*hook)(const char *text));
// The exit status of a program that met a NOT_YET.
#define CHECK_NOT_YET_EXIT 87

#endif
